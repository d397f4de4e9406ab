"""`jaxformer.train`: a run without a config file, in a notebook or in a program of one's own."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from jaxformer import build
from jaxformer.core import optim
from jaxformer.core.errors import UserError, did_you_mean
from jaxformer.core.partition import FROZEN, Partition
from jaxformer.core.settings import DataSettings, DeviceSettings, OptimSettings, TrainSettings
from jaxformer.io.run_folder import MemoryWorkdir, config_hash, open_workdir
from jaxformer.models.model import check_model
from jaxformer.models.pretrained_init import Started
from jaxformer.tasks.source import Data, make_source
from jaxformer.tasks.task import Task
from jaxformer.training import curves
from jaxformer.training.population import Population, of_seeds, population
from jaxformer.training.result import Result
from jaxformer.training.run import Trained, train_phases
from jaxformer.training.setup import make_phases, make_setup, shapes_of
from jaxformer.training.user_optimizer import (
    UserOptimizer,
    check_learning_rate,
    user_optimizers,
)

Rules = Iterable[tuple[str, str]]
ALL: Rules = ((".*", "train"),)
LEARNING_RATE = 1e-3
# Fields of the settings for which `train` has words of its own; labels are those of `optimizer`.
SAID_ELSEWHERE = ("batch_size", "steps", "learning_rate", "labels")


@dataclass(frozen=True)
class Run:
    """What `train` gives back. Members are ordered by learning rate, then by seed."""

    trained: Trained
    folder: Path | None  # where it lies, if anywhere
    finished: Result | None  # None: it was stopped

    @property
    def result(self) -> Result:
        """Test scores of the chosen learning rate over the seeds, beside trivial predictors."""
        if self.finished is None:
            setup, step = self.trained.session.settings, int(self.trained.state.step)
            raise UserError(
                f"the run was stopped at step {step} of {setup.steps}: it has no result. The same "
                "call goes on if it names a workdir; without one it starts anew."
            )
        return self.finished

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of the first seed at the chosen learning rate."""
        return self.member(self.chosen()[0])

    def member(self, i: int) -> dict[str, Any]:
        """The parameters of one member."""
        n = len(self.trained.session.setup.population.members)
        if not 0 <= i < n:
            raise UserError(f"the run has members 0 to {n - 1}, got {i}.")
        return jax.tree.map(lambda leaf: leaf[i], self.trained.params)

    def chosen(self) -> list[int]:
        """The members with the learning rate that is best in validation; before any, the first."""
        kept = self.trained.session.chosen(self.trained.state)
        return [i for i, is_chosen in enumerate(kept) if is_chosen]

    @property
    def curves(self) -> dict[str, np.ndarray]:
        """{"step": (rows,), "loss": (rows, members), ..}; validation has steps of its own, so has
        the signal, (rows, members, layers)."""
        rows = self.trained.session.workdir.rows()
        training = [row for row in rows if "loss" in row]
        names = training[0] if training else ("step", "loss")  # stopped before the first row
        found = {name: np.array([row[name] for row in training], float) for name in names}
        validated = [row for row in rows if "validation" in row]
        found["validation_step"] = np.array([row["step"] for row in validated])
        for name in validated[0]["validation"] if validated else ():
            values = [row["validation"][name] for row in validated]
            found[f"validation_{name}"] = np.array(values, float)
        watched = [row for row in rows if "signal" in row]
        if watched:
            found["signal_step"] = np.array([row["step"] for row in watched])
        for name in watched[0]["signal"] if watched else ():
            found[f"signal_{name}"] = np.array([row["signal"][name] for row in watched], float)
        return found

    def plot(self) -> Any:
        """A matplotlib figure of the loss and the validation accuracy of the chosen members."""
        session = self.trained.session
        name = type(session.setup.task).__name__
        chosen = [i in self.chosen() for i in range(len(session.setup.population.members))]
        baselines = self.finished.baselines if self.finished else {}
        from matplotlib import pyplot

        figure = pyplot.figure()  # by pyplot, so that a notebook knows how to show it
        pyplot.close(figure)  # and does so once
        return curves.curves({name: session.workdir.rows()}, baselines, {name: chosen}, figure)

    def __repr__(self) -> str:
        where = f" in {self.folder}" if self.folder else ""
        if self.finished is None:
            return f"Run(stopped at step {int(self.trained.state.step)}{where})"
        shown = ("accuracy", "loss")
        means = [
            f"{name} {v.mean:.4g}" for name, v in self.finished.metrics.items() if name in shown
        ]
        return f"Run({', '.join(means)}, {self.finished.steps} steps{where})"


def train(
    task: Task,
    model: Any,
    partition: Partition | Rules = ALL,
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
    """Trains a model on a task; `partition` says which parameters.

    `learning_rate`: several are tried, validation chooses; 1e-3 by default. `seeds`: a number, or
    which ones. `optimizer`: an AdamW or SGD of jaxformer.core.optim, an optax optimizer or
    transformation, or {label: one of these}. `unfreeze`: ((step, rules), ..). `data`: sizes, or
    a training source (jaxformer.tasks.source.Data). With `workdir` the run is saved regularly, and
    the same call resumes it. `settings`: further fields of TrainSettings (log_every, eval_every,
    target, probes, signal, members) and OptimSettings (schedule, warmup, clip).

    A complete optimizer such as `optax.adamw(1e-2)` is used as it is: leave out `learning_rate`,
    `schedule` and `warmup`; `clip` is 0 unless given. A transformation without a learning rate,
    such as `optax.scale_by_adam()`, uses all of these. An optimizer that would train uphill is
    refused. `optimizer_name` identifies optax transformations in a `workdir`: a call with another
    name is refused. Without a name only the structure of their state is compared.
    """
    partition = partition if isinstance(partition, Partition) else Partition(partition)
    later = [(step, Partition(rules)) for step, rules in unfreeze]
    known = _fields(settings)
    _check(task, model)
    specs = _specs(
        optimizer,
        [partition, *(rules for _, rules in later)],
        lambda: shapes_of(model, task),
        optimizer_name,
    )
    rates_given = {"learning_rate": learning_rate}
    rates_given |= {name: settings.get(name) for name in ("schedule", "warmup")}
    has_rates = check_learning_rate(specs, rates_given)
    often: dict[str, Any] = {"eval_every": max(steps // 10, 1)}
    early: dict[str, Any] = {"warmup": min(50, steps // 4)}
    if has_rates:
        early = {"schedule": "constant", "warmup": 0, "clip": 0.0}
    train_settings = TrainSettings(batch_size, steps, **(often | known[TrainSettings]))
    optim_settings = OptimSettings(**(early | known[OptimSettings]))
    default_rate = 1.0 if has_rates else LEARNING_RATE
    members = _population(seeds, default_rate if learning_rate is None else learning_rate)
    if len(members.rates) > 1 and not train_settings.eval_every:
        raise UserError(
            f"validation chooses among the learning rates {members.rates}: with eval_every=0 there "
            "is none. Give one learning rate, or an eval_every of at least 1."
        )
    if data is None or isinstance(data, DataSettings):
        data = make_source(task, data or DataSettings(), batch_size)

    def transformation(rules: Partition) -> optax.GradientTransformation:
        factor = optim.schedule(optim_settings.schedule, steps, optim_settings.warmup)
        return optim.optimizer(rules, specs, optim_settings.clip, factor)

    setup = make_setup(
        *(task, model, partition, transformation(partition), data, members),
        *(train_settings, devices or DeviceSettings()),
    )
    phases = make_phases(setup, steps, [(s, rules.rules) for s, rules in later], transformation)
    nouns = build.sections(task, model)
    if isinstance(model, Started):  # the parameters are a part of what it is
        nouns["model"]["params"] = model.fingerprint()
    sections = {
        **nouns,
        "data": {"name": type(data).__name__, **build.json_fields(data)},
        "partition": partition.rules,
        "unfreeze": [(step, rules.rules) for step, rules in later],
        "optim": asdict(optim_settings) | {"learning_rate": members.rates, "labels": repr(specs)},
        "train": asdict(train_settings),
    }
    held = _config_json(type(task).__name__, members, sections) | build.tokens_of(task)
    if workdir and (Path(workdir) / "config.json").exists():
        _warn_of_unnamed(specs)
    with open_workdir(workdir, held) if workdir else nullcontext(MemoryWorkdir(held)) as folder:
        if progress:
            counts = setup.counts()
            print("parameters:", ", ".join(f"{n:,} {label}" for label, n in counts.items()))
        trained = train_phases(phases, train_settings, folder, progress=progress)
        result = None if trained.exit_code() else trained.result()
        if result:
            folder.write("result.json", result.as_json())
        return Run(trained, getattr(folder, "path", None), result)


def _check(task: Task, model: Any) -> None:
    """Raises unless the model is one, and was built for this task."""
    check_model(model)
    spec = model.spec
    if spec.vocab_size != task.vocab_size or spec.length < task.length:
        raise UserError(
            f"{type(task).__name__} has {task.vocab_size} symbols and sequences of up to "
            f"{task.length} tokens; the model was built for {spec.vocab_size} and {spec.length}: "
            "make it with vocab_size=task.vocab_size, length=task.length."
        )


def _fields(settings: Mapping[str, Any]) -> dict[type, dict[str, Any]]:
    """The keyword arguments by the settings that have a field of their name."""
    kinds = {
        kind: [field.name for field in fields(kind) if field.name not in SAID_ELSEWHERE]
        for kind in (TrainSettings, OptimSettings)
    }
    names = [name for found in kinds.values() for name in found]
    for name in settings:
        if name not in names:
            hint = did_you_mean(name, names)
            raise UserError(f"train has no argument {name!r}.{hint} Further ones: {names}.")
    return {
        kind: {name: settings[name] for name in found if name in settings}
        for kind, found in kinds.items()
    }


def _population(seeds: int | Sequence[int], rates: float | Sequence[float]) -> Population:
    """The numbers may be NumPy's."""
    said: Any = np.asarray(seeds).tolist()
    several: list[float] = np.atleast_1d(rates).tolist()
    if isinstance(said, list):
        return of_seeds(said, several)
    if not isinstance(said, int):
        raise UserError(f"seeds must be a number of seeds, or which ones, got {seeds!r}.")
    return population(0, said, several)


def _specs(
    optimizer: Any, partitions: Sequence[Partition], shapes: Callable[[], Any], name: str | None
) -> dict[str, Any]:
    """Returns {label: its optimizer} for all labels that are ever trained."""
    labels = {label for p in partitions for _, label in p.rules} - {FROZEN}
    if optimizer is None:
        optimizer = optim.AdamW(weight_decay=1e-3)
    if not isinstance(optimizer, Mapping):
        optimizer = dict.fromkeys(sorted(labels), optimizer)
    return user_optimizers(optimizer, partitions, shapes, name)


def _warn_of_unnamed(specs: Mapping[str, Any]) -> None:
    unnamed = [
        label
        for label, spec in specs.items()
        if isinstance(spec, UserOptimizer) and not spec.is_named
    ]
    if unnamed:
        print(
            f"warning: the optimizer of the label {unnamed[0]!r} has no name: a run that resumes "
            "compares the structure of its state, not its settings. Give train an optimizer_name.",
            file=sys.stderr,
        )


def _config_json(name: str, members: Population, sections: Mapping[str, Any]) -> dict[str, Any]:
    """What config.json holds of a run that has no config file."""
    config = {"name": name, "recipe": "library", "arguments": {"scale": "own"}, **sections}
    config |= {"seed": members.seeds[0], "n_seeds": len(members.seeds), "seeds": members.seeds}
    shown = {"config_file": "", "overrides": {}, "config_hash": config_hash(config)}
    return {"config": config, **shown}
