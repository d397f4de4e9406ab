"""The arguments of `jaxformer.train` and `jaxformer.plan`, checked and converted."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypedDict

import numpy as np

from jaxformer.core import adapters, optim, paths
from jaxformer.core.errors import UserError, check_type, did_you_mean
from jaxformer.core.partition import FROZEN, Partition
from jaxformer.core.settings import DataSettings, DeviceSettings, OptimSettings, TrainSettings
from jaxformer.core.variants import FIXED_POSITIONS, VARIANTS, variant_named
from jaxformer.models.model import check_model
from jaxformer.models.pretrained_init import FromParams, from_params
from jaxformer.models.source import origin
from jaxformer.tasks.task import Task
from jaxformer.training.callbacks import Callback
from jaxformer.training.population import Population, population, population_of_seeds
from jaxformer.training.shapes import shapes_of
from jaxformer.training.user_optimizer import Complete, OfRate, user_optimizers

# Fields of the settings that are named arguments of `train`.
SEPARATE_ARGUMENTS = ("batch_size", "steps", "learning_rate", "labels")
DATA_MEMBERS = ("batch_size", "heldout", "batch_at", "unseen")  # of `tasks.source.Data`


class TrainOptions(TypedDict, total=False):
    """Further arguments of `jaxformer.train`: fields of `TrainSettings` and `OptimSettings`."""

    log_every: int
    eval_every: int
    members: str
    target: float
    patience: int
    probes: tuple[str, ...]
    loss_chunk: int
    accumulate: int
    throughput: bool
    signal: bool
    schedule: str
    warmup: int
    clip: float


def check_fits(task: Task, model: Any) -> None:
    """Raises UserError unless the model was built for this task."""
    if not isinstance(task, Task):
        hint = " Are task and model exchanged?" if isinstance(model, Task) else ""
        raise UserError(
            "task must be one of jaxformer.tasks, such as Arrays(inputs, targets), or a Task of "
            f"yours; got {type(task).__name__}.{hint}"
        )
    check_model(model)
    spec = model.spec
    if spec.vocab_size != task.vocab_size or spec.length < task.length:
        raise UserError(
            f"{type(task).__name__} has {task.vocab_size} symbols and sequences of up to "
            f"{task.length} tokens; the model was built for {spec.vocab_size} and {spec.length}: "
            "make it with vocab_size=task.vocab_size, length=task.length."
        )


def check_mixer(rules: Any, model: Any) -> None:
    """Raises UserError if `rules` names a variant that mixes tokens in another way than the model.

    A model without a field `mixer`, such as a user's own, has the rules of the variant alone.
    """
    mixer = getattr(model.spec, "mixer", None)
    if not isinstance(rules, str) or rules not in VARIANTS | FIXED_POSITIONS or mixer is None:
        return
    wanted = variant_named(rules).mixer
    if mixer != wanted:
        learned = ", learned_positions=True" * (wanted == "mixit")
        raise UserError(
            f"the variant {rules!r} has mixer={wanted!r}, the model has mixer={mixer!r}: make it "
            f"with decoder(.., mixer={wanted!r}{learned}), or give rules instead of the name."
        )


def with_initial_values(task: Task, model: Any, params: Any, from_scratch: bool) -> Any:
    """Returns the model that a run trains: with given parameters, or one that draws its own.

    Raises:
      UserError: the model was loaded, and the call does not say which values it starts from; or the
        parameters are not those of this model.
    """
    if params is not None and from_scratch:
        raise UserError("give params, to start from them, or from_scratch=True, not both.")
    if isinstance(model, FromParams):
        if params is not None or from_scratch:
            raise UserError("the model has its parameters by from_params: leave params out.")
        return model
    if params is not None:
        check_params(task, model, params)
        return from_params(model, params)
    if (source := origin(model)) and not from_scratch:
        raise UserError(
            f"the model was loaded from {source}, and a module has no weights: give "
            "params=params to start from the loaded ones, or from_scratch=True to draw new ones."
        )
    return model


def initial_values_line(model: Any) -> str:
    """Returns the line below the table of parameters that says where their values come from."""
    if not isinstance(model, FromParams):
        return "initial values: drawn for each seed"
    source = origin(model.model)
    return f"initial values: given, the same for all seeds{source and f' (from {source})'}"


def check_params(task: Task, model: Any, params: Any) -> None:
    """Raises UserError unless these are parameters of the model; adapters may be among them."""
    if not isinstance(params, Mapping):
        raise UserError(
            f"params must be a tree of parameters, such as run.params; got {params!r:.60}."
        )
    known, given = paths.flatten(shapes_of(model, task)), paths.flatten(params)
    for path, leaf in known.items():
        if path not in given:
            raise UserError(f"params lack {path} of the model: they are of another model.")
        if given[path].shape != leaf.shape:
            raise UserError(
                f"params are of another model: {path} has the shape {given[path].shape}, the "
                f"model's is {leaf.shape}."
            )
    for path in given:
        if path not in known and not adapters.is_leaf(path):
            raise UserError(f"params have {path}, which the model lacks: they are of another one.")


def check_devices(devices: Any) -> None:
    """Raises UserError unless these are settings of devices."""
    if not (devices is None or isinstance(devices, DeviceSettings)):
        raise UserError(
            "devices must be a DeviceSettings of jaxformer.core.settings, such as "
            f"DeviceSettings(data=2); got {devices!r}."
        )


def check_data(data: Any) -> None:
    """Raises UserError unless these are settings of data sets, or an object like `source.Data`."""
    missing = [name for name in DATA_MEMBERS if not hasattr(data, name)]
    if not (data is None or isinstance(data, DataSettings)) and missing:
        raise UserError(
            f"data must be DataSettings(..) of jaxformer.core.settings, or have "
            f"{', '.join(DATA_MEMBERS)}; got {data!r:.100} without {', '.join(missing)}."
        )


def check_callbacks(callbacks: Any) -> None:
    """Raises UserError unless this is a sequence of callbacks; a plain function is none."""
    given = callbacks if isinstance(callbacks, Sequence) else (callbacks,)
    if wrong := [x for x in given if not isinstance(x, Callback)]:
        raise UserError(
            "callbacks must be a sequence of jaxformer.training.callbacks.Callback, such as "
            f"[Every(100, function)]; got {type(wrong[0]).__name__}."
        )
    if not isinstance(callbacks, Sequence):
        raise UserError("callbacks must be a sequence of callbacks, as in [Every(100, function)].")


def unfreeze_rules(unfreeze: Iterable[tuple[int, Any]]) -> list[tuple[int, Partition]]:
    """Returns (step, partition) for each entry of the argument `unfreeze`."""
    try:
        return [(step, Partition(rules)) for step, rules in unfreeze]
    except (TypeError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"unfreeze must be a sequence of (step, ((pattern, label), ..)), got {unfreeze!r:.100}."
        ) from None


def settings_of(
    given: Mapping[str, Any], steps: int, batch_size: int, has_rates: bool
) -> tuple[TrainSettings, OptimSettings]:
    """Returns the settings of training and of the optimizer, with the defaults of `train`.

    Args:
      given: the settings that the caller has given, by name.
      steps: training steps.
      batch_size: examples per step and member.
      has_rates: whether the optimizers have their own learning rates.
    """
    check_type("steps", steps, int)
    fields_of = _split_settings(given)
    optim_defaults: dict[str, Any] = {"warmup": max(min(50, steps // 4), 0)}
    if has_rates:
        optim_defaults = {"schedule": "constant", "warmup": 0, "clip": 0.0}
    train_fields: dict[str, Any] = {"eval_every": max(steps // 10, 1)} | fields_of[TrainSettings]
    optim_settings = OptimSettings(**(optim_defaults | fields_of[OptimSettings]))
    return TrainSettings(batch_size, steps, **train_fields), optim_settings


def _split_settings(settings: Mapping[str, Any]) -> dict[type, dict[str, Any]]:
    """Splits keyword arguments into the fields of TrainSettings and of OptimSettings."""
    names_of = {
        kind: [field.name for field in fields(kind) if field.name not in SEPARATE_ARGUMENTS]
        for kind in (TrainSettings, OptimSettings)
    }
    names = [name for kind_names in names_of.values() for name in kind_names]
    for name in settings:
        if name not in names:
            hint = did_you_mean(name, names)
            raise UserError(f"train has no argument {name!r}.{hint} It takes also: {names}.")
    return {
        kind: {name: settings[name] for name in kind_names if name in settings}
        for kind, kind_names in names_of.items()
    }


def population_of(seeds: int | Sequence[int], rates: float | Sequence[float]) -> Population:
    """Returns the population of seeds and rates, which may be numbers or arrays of NumPy."""
    plain_seeds: Any = np.asarray(seeds).tolist()
    plain_rates: list[float] = np.atleast_1d(rates).tolist()
    if isinstance(plain_seeds, list):
        return population_of_seeds(plain_seeds, plain_rates)
    if not isinstance(plain_seeds, int) or isinstance(plain_seeds, bool):
        raise UserError(f"seeds must be a number of seeds, or a list of them, got {seeds!r}.")
    return population(0, plain_seeds, plain_rates)


def optimizers_of(
    optimizer: Any, partitions: Sequence[Partition], shapes: Callable[[], Any], name: str | None
) -> dict[str, Any]:
    """Returns {label: optimizer} for the labels that some phase trains.

    Args:
        optimizer: the argument of `jaxformer.train`: one optimizer, {label: optimizer} or None.
        partitions: the partitions of all phases.
        shapes: a function that returns the shapes of the parameters.
        name: the argument `optimizer_name`.
    """
    labels = {label for p in partitions for label in p.trained_labels}
    if optimizer is None:
        optimizer = optim.AdamW()
    if not isinstance(optimizer, Mapping):
        for label in sorted(labels):
            if hint := did_you_mean(label, [FROZEN]):  # a misspelt "frozen" would be trained
                raise UserError(f"the label {label!r} does not freeze.{hint}")
        optimizer = dict.fromkeys(sorted(labels), optimizer)
    return user_optimizers(optimizer, partitions, shapes, name)


def warn_of_unnamed(optimizers: Mapping[str, Any]) -> None:
    """Warns on standard error of the first optimizer without a name."""
    unnamed = [
        label
        for label, optimizer in optimizers.items()
        if isinstance(optimizer, Complete | OfRate) and not optimizer.is_named
    ]
    if unnamed:
        print(
            f"warning: the optimizer of the label {unnamed[0]!r} has no name: a run that resumes "
            "compares the structure of its state, not its settings. Give train an optimizer_name.",
            file=sys.stderr,
        )
