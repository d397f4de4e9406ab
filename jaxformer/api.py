"""`jaxformer.train`: a training run without a config file, in a notebook or a program."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import optax

from jaxformer import build
from jaxformer.core import optim
from jaxformer.core.errors import UserError, did_you_mean
from jaxformer.core.partition import FROZEN, Partition
from jaxformer.core.settings import DataSettings, DeviceSettings, OptimSettings, TrainSettings
from jaxformer.io.run_folder import MemoryWorkdir, config_hash, open_workdir
from jaxformer.models.model import check_model
from jaxformer.models.pretrained_init import FromParams
from jaxformer.tasks.source import Data, make_source
from jaxformer.tasks.task import Task
from jaxformer.training.population import Population, population, population_of_seeds
from jaxformer.training.run import train_phases
from jaxformer.training.run_view import Run, run_of
from jaxformer.training.setup import make_phases, make_setup, shapes_of
from jaxformer.training.user_optimizer import (
    UserOptimizer,
    check_learning_rate,
    user_optimizers,
)

Rules = Iterable[tuple[str, str]]
TRAIN_EVERYTHING: Rules = ((".*", "train"),)
DEFAULT_LEARNING_RATE = 1e-3
# Fields of the settings that have their own argument of `train`.
OWN_ARGUMENTS = ("batch_size", "steps", "learning_rate", "labels")


def train(
    task: Task,
    model: Any,
    partition: Partition | Rules = TRAIN_EVERYTHING,
    *,
    steps: int,
    batch_size: int = 128,
    learning_rate: float | Sequence[float] | None = None,
    seeds: int | Sequence[int] = 1,
    optimizer: Any = None,
    optimizer_name: str | None = None,
    unfreeze: Iterable[tuple[int, Rules]] = (),
    data: Data | DataSettings | None = None,
    workdir: str | Path | None = None,
    devices: DeviceSettings | None = None,
    progress: bool = True,
    **settings: Any,
) -> Run:
    """Trains a model on a task and returns its scores, parameters and curves.

    All seeds and learning rates are trained in one compiled program, as members of a population.
    A member whose loss is not finite keeps its last good state and does not stop the others.

    Example:

        import jaxformer
        from jaxformer.models.decoder import decoder
        from jaxformer.tasks.retrieval import Retrieval

        task = Retrieval(max_pairs=3, vocab=16)
        sizes = dict(width=16, layers=2, heads=2, mlp_width=64)
        model = decoder(vocab_size=task.vocab_size, length=task.length, **sizes)
        rules = ((".*/(query|key)/.*", "frozen"), (".*", "train"))
        run = jaxformer.train(task, model, rules, steps=20, batch_size=8, seeds=2)
        run.result.metrics["accuracy"]  # Mean(mean, sem, n) over the seeds, on the test set
        run.params["block_0"]["attn"]["query"]["kernel"]

    Args:
      task: the source of examples, and the loss (`jaxformer.tasks`).
      model: a module of `jaxformer.models`, or a wrapped one, built for this task.
      partition: (pattern, label) rules over parameter paths; the first full match wins, and
        "frozen" is not trained. Default: everything is trained.
      steps: training steps; no default.
      batch_size: examples per step and member. Default 128.
      learning_rate: one, or several among which validation chooses. It multiplies the schedule,
        whose peak is 1. Default 1e-3.
      seeds: a number of seeds 0, 1, .., or a list of them. Default 1.
      optimizer: an AdamW or SGD of `jaxformer.core.optim`, an optax optimizer or transformation, or
        {label: one of these}. Default AdamW with weight decay 1e-3. A complete optax optimizer such
        as `optax.adamw(1e-2)` has its own learning rate: leave out `learning_rate`, `schedule` and
        `warmup`; `clip` is then 0 unless given. A transformation without a rate, such as
        `optax.scale_by_adam()`, uses all of these. An optimizer that would train uphill is refused.
      optimizer_name: identifies optax transformations in a `workdir`; a call with another name is
        refused. Without a name only the structure of their state is compared.
      unfreeze: (step, rules) in increasing order; from this step on these rules hold. Default ().
      data: sizes of the data sets (`DataSettings`), or a training source
        (`jaxformer.tasks.source.Data`). Default: fresh training examples, 1,000 for each held-out
        set.
      workdir: a folder for rows, checkpoints and result. The same call resumes the run in it.
        Default: nothing is saved.
      devices: sizes of the mesh axes. Default: the batch is split over all devices.
      progress: print parameter counts and a progress line. Default True.
      **settings: fields of `TrainSettings` (log_every=10, eval_every=steps/10, members="map",
        target, patience, probes, signal, throughput, loss_chunk, accumulate) and of `OptimSettings`
        (schedule="cosine", warmup=min(50, steps/4), clip=1.0). Intervals count steps.

    Returns:
      A `Run`: `result`, `params`, `curves`, `plot()`.

    Raises:
      UserError: an argument is wrong, the parts do not fit together, or all members diverged.
    """
    partition = partition if isinstance(partition, Partition) else Partition(partition)
    later = [(step, Partition(rules)) for step, rules in unfreeze]
    fields_of = _split_settings(settings)
    _check_model(task, model)
    optimizers = _optimizers(
        optimizer,
        [partition, *(rules for _, rules in later)],
        lambda: shapes_of(model, task),
        optimizer_name,
    )
    rates_given = {"learning_rate": learning_rate}
    rates_given |= {name: settings.get(name) for name in ("schedule", "warmup")}
    has_rates = check_learning_rate(optimizers, rates_given)
    train_defaults: dict[str, Any] = {"eval_every": max(steps // 10, 1)}
    optim_defaults: dict[str, Any] = {"warmup": min(50, steps // 4)}
    if has_rates:
        optim_defaults = {"schedule": "constant", "warmup": 0, "clip": 0.0}
    train_settings = TrainSettings(batch_size, steps, **(train_defaults | fields_of[TrainSettings]))
    optim_settings = OptimSettings(**(optim_defaults | fields_of[OptimSettings]))
    default_rate = 1.0 if has_rates else DEFAULT_LEARNING_RATE
    members = _population(seeds, default_rate if learning_rate is None else learning_rate)
    if len(members.rates) > 1 and not train_settings.eval_every:
        raise UserError(
            f"validation chooses among the learning rates {members.rates}, and eval_every=0 turns "
            "it off. Give one learning rate, or an eval_every of at least 1."
        )
    if data is None or isinstance(data, DataSettings):
        data = make_source(task, data or DataSettings(), batch_size)

    def transformation(rules: Partition) -> optax.GradientTransformation:
        factor = optim.schedule(optim_settings.schedule, steps, optim_settings.warmup)
        return optim.optimizer(rules, optimizers, optim_settings.clip, factor)

    tx, devices = transformation(partition), devices or DeviceSettings()
    setup = make_setup(task, model, partition, tx, data, members, train_settings, devices)
    phases = make_phases(setup, steps, [(s, rules.rules) for s, rules in later], transformation)
    parts = build.sections(task, model)
    if isinstance(model, FromParams):  # its initial parameters identify the run
        parts["model"]["params"] = model.fingerprint()
    sections = {
        **parts,
        "data": {"name": type(data).__name__, **build.json_fields(data)},
        "partition": partition.rules,
        "unfreeze": [(step, rules.rules) for step, rules in later],
        "optim": asdict(optim_settings)
        | {"learning_rate": members.rates, "labels": repr(optimizers)},
        "train": asdict(train_settings),
    }
    config_json = _config_json(type(task).__name__, members, sections) | build.tokens_of(task)
    if workdir and (Path(workdir) / "config.json").exists():
        _warn_of_unnamed(optimizers)
    opened = (
        open_workdir(workdir, config_json) if workdir else nullcontext(MemoryWorkdir(config_json))
    )
    with opened as folder:
        if progress:
            counts = setup.counts()
            print("parameters:", ", ".join(f"{n:,} {label}" for label, n in counts.items()))
        trained = train_phases(phases, train_settings, folder, progress=progress)
        result = None if trained.exit_code() else trained.result()
        if result:
            folder.write("result.json", result.as_json())
        return run_of(trained, folder, result)


def _check_model(task: Task, model: Any) -> None:
    """Raises UserError unless the model was built for this task."""
    check_model(model)
    spec = model.spec
    if spec.vocab_size != task.vocab_size or spec.length < task.length:
        raise UserError(
            f"{type(task).__name__} has {task.vocab_size} symbols and sequences of up to "
            f"{task.length} tokens; the model was built for {spec.vocab_size} and {spec.length}: "
            "make it with vocab_size=task.vocab_size, length=task.length."
        )


def _split_settings(settings: Mapping[str, Any]) -> dict[type, dict[str, Any]]:
    """Splits keyword arguments into the fields of TrainSettings and of OptimSettings."""
    names_of = {
        kind: [field.name for field in fields(kind) if field.name not in OWN_ARGUMENTS]
        for kind in (TrainSettings, OptimSettings)
    }
    names = [name for kind_names in names_of.values() for name in kind_names]
    for name in settings:
        if name not in names:
            hint = did_you_mean(name, names)
            raise UserError(f"train has no argument {name!r}.{hint} Further ones: {names}.")
    return {
        kind: {name: settings[name] for name in kind_names if name in settings}
        for kind, kind_names in names_of.items()
    }


def _population(seeds: int | Sequence[int], rates: float | Sequence[float]) -> Population:
    """Returns the population of seeds and rates, which may be numbers or arrays of NumPy."""
    plain_seeds: Any = np.asarray(seeds).tolist()
    plain_rates: list[float] = np.atleast_1d(rates).tolist()
    if isinstance(plain_seeds, list):
        return population_of_seeds(plain_seeds, plain_rates)
    if not isinstance(plain_seeds, int):
        raise UserError(f"seeds must be a number of seeds, or a list of them, got {seeds!r}.")
    return population(0, plain_seeds, plain_rates)


def _optimizers(
    optimizer: Any, partitions: Sequence[Partition], shapes: Callable[[], Any], name: str | None
) -> dict[str, Any]:
    """Returns {label: optimizer} for the labels that some phase trains."""
    labels = {label for p in partitions for _, label in p.rules} - {FROZEN}
    if optimizer is None:
        optimizer = optim.AdamW(weight_decay=1e-3)
    if not isinstance(optimizer, Mapping):
        optimizer = dict.fromkeys(sorted(labels), optimizer)
    return user_optimizers(optimizer, partitions, shapes, name)


def _warn_of_unnamed(optimizers: Mapping[str, Any]) -> None:
    unnamed = [
        label
        for label, optimizer in optimizers.items()
        if isinstance(optimizer, UserOptimizer) and not optimizer.is_named
    ]
    if unnamed:
        print(
            f"warning: the optimizer of the label {unnamed[0]!r} has no name: a run that resumes "
            "compares the structure of its state, not its settings. Give train an optimizer_name.",
            file=sys.stderr,
        )


def _config_json(name: str, members: Population, sections: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the content of config.json for a run without a config file."""
    config = {"name": name, "recipe": "library", "arguments": {"scale": "own"}, **sections}
    config |= {"seed": members.seeds[0], "n_seeds": len(members.seeds), "seeds": members.seeds}
    config_digest = config_hash(config)
    return {"config": config, "config_file": "", "overrides": {}, "config_hash": config_digest}
