"""The result of a finished run: the schema of result.json."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from jaxformer.core.text_format import counted, number, with_error
from jaxformer.io.run_folder import Workdir
from jaxformer.runtime.environment import environment
from jaxformer.training.metrics import Mean

# Fields that the file leaves out if they are None.
OPTIONAL = (
    "steps",
    "diagnostics",
    "trusted",
    "doubts",
    "alarms",
    "performance",
    "timing",
    "validation_baselines",
)

MAX_SHOWN = 4  # scores and baselines in a repr, which is one line


@dataclass(frozen=True, repr=False)
class Result:
    """The metrics of a run with its settings and its machine."""

    config: Mapping[str, Any]  # with all defaults
    overrides: Mapping[str, Any]  # {field: value} of --config.FIELD=VALUE flags
    config_hash: str
    scale: str  # the argument `scale` of the config, such as "tiny"
    seeds: Sequence[int]
    metrics: Mapping[str, Mean]  # over the seeds of the chosen members
    # An entry for each member: seed, learning_rate, metrics, diverged_at. Members of a population
    # also have chosen, reached_at, validation_accuracy, chosen_by and the validation score that
    # chosen_by names.
    members: Sequence[Mapping[str, Any]]
    baselines: Mapping[str, float]  # scores of trivial predictors on the same set
    parameters: Mapping[str, int]  # {label of the partition: number of parameters}
    environment: Mapping[str, Any]
    seconds: Mapping[str, float]  # compile, run and cpu, over all sessions
    steps: int | None = None  # training steps done
    diagnostics: Mapping[str, Any] | None = None  # of a sampler
    alarms: Sequence[str] | None = None  # warnings, a line each
    trusted: bool | None = None  # whether the sampler's chains can be trusted
    doubts: Sequence[str] | None = None  # reasons against the chains
    # Numbers that differ between equal runs, all of the last session (training/cost/).
    performance: Mapping[str, float] | None = None
    timing: Mapping[str, float] | None = None  # with train.throughput
    # Scores of trivial predictors on the validation set, which curves of validation scores need:
    # its examples are harder where they avoid those of the test set (a split by redrawing).
    validation_baselines: Mapping[str, float] | None = None

    def __repr__(self) -> str:
        first = [name for name in ("accuracy", "loss") if name in self.metrics]
        names = [*first, *(name for name in self.metrics if name not in first)][:MAX_SHOWN]
        scores = [f"{name} {with_error(*self.metrics[name][:2])}" for name in names]
        if more := len(self.metrics) - len(names):
            scores.append(f"{counted(more, 'more metric')}")
        trivial = [f"{name} {number(value)}" for name, value in self.baselines.items()]
        guessing = f"; guessing: {', '.join(trivial[:MAX_SHOWN])}" if trivial else ""
        return f"Result({', '.join(scores)}{guessing}; {counted(len(self.seeds), 'seed')})"

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Result":
        """Returns the result of a result.json."""
        values = {f.name: content[f.name] for f in fields(cls) if f.name in content}
        values["metrics"] = {
            name: Mean(_null_as_nan(mean["mean"]), _null_as_nan(mean["sem"]), mean["n"])
            for name, mean in content["metrics"].items()
        }
        return cls(**values)

    def as_json(self) -> dict[str, Any]:
        """Returns the content of result.json."""
        return {n: v for n, v in vars(self).items() if v is not None or n not in OPTIONAL}


def _null_as_nan(value: float | None) -> float:
    """Returns a number of a JSON file, in which null stands for NaN."""
    return math.nan if value is None else value


def validated(member: Mapping[str, Any]) -> tuple[str, Any]:
    """Returns name and value of the validation score that chooses the learning rate.

    Members without the field `chosen_by` were chosen by accuracy.
    """
    name = member.get("chosen_by", "accuracy")
    return name, member.get(f"validation_{name}")


def result_of(
    workdir: Workdir,
    *,
    seeds: Sequence[int],
    metrics: Mapping[str, Mean],
    seconds: Mapping[str, float],
    members: Sequence[Mapping[str, Any]] = (),
    baselines: Mapping[str, float] | None = None,
    parameters: Mapping[str, int] | None = None,
    **optional: Any,
) -> Result:
    """Returns the result of a run, with the settings of the config.json in its folder.

    Args:
        workdir: the folder of the run, with its config.json.
        seeds: the seeds of the run.
        metrics: the mean of each test metric over the chosen members.
        seconds: {"compile": .., "run": .., "cpu": ..}.
        members: the metrics and the validation of each member.
        baselines: scores of trivial predictors on the test set.
        parameters: {label: number of parameters}.
        **optional: further fields of `Result`.
    """
    settings = workdir.read("config.json")
    return Result(
        config=settings["config"],
        overrides=settings["overrides"],
        config_hash=settings["config_hash"],
        scale=settings["config"]["arguments"]["scale"],
        seeds=list(seeds),
        metrics=metrics,
        members=members,
        baselines=baselines or {},
        parameters=parameters or {},
        environment=environment(),
        seconds=seconds,
        **optional,
    )
