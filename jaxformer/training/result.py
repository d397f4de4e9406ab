"""What a finished run found: the schema of result.json, written here and nowhere else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jaxformer.io.run_folder import Workdir
from jaxformer.runtime.environment import environment
from jaxformer.training.metrics import Mean

# Left out of the file where a run has none.
OPTIONAL = ("steps", "diagnostics", "trusted", "doubts", "alarms", "performance")


@dataclass(frozen=True)
class Result:
    """The numbers of a run, the settings behind them and the machine that made them."""

    config: Mapping[str, Any]  # whole
    overrides: Mapping[str, Any]
    config_hash: str
    scale: str
    seeds: Sequence[int]
    metrics: Mapping[str, Mean]  # over the seeds of the chosen members
    # One entry a member: seed, learning_rate, metrics, diverged_at; a population also says chosen,
    # reached_at, validation_accuracy, chosen_by and the validation score of that name.
    members: Sequence[Mapping[str, Any]]
    baselines: Mapping[str, float]  # what trivial predictors score on the same set
    parameters: Mapping[str, int]  # by label
    environment: Mapping[str, Any]
    seconds: Mapping[str, float]  # compile, run and cpu, over all sessions
    steps: int | None = None  # that were trained
    diagnostics: Mapping[str, Any] | None = None  # of a sampler
    alarms: Sequence[str] | None = None  # lines that say what went wrong without an error
    trusted: bool | None = None  # are its chains?
    doubts: Sequence[str] | None = None  # what speaks against them
    performance: Mapping[str, float] | None = None  # of its last session (training/cost.py)

    def as_json(self) -> dict[str, Any]:
        """The content of result.json."""
        return {n: v for n, v in vars(self).items() if v is not None or n not in OPTIONAL}


def validated(member: Mapping[str, Any]) -> tuple[str, Any]:
    """The name and the value of the validation score that chose among learning rates.

    Results from before there was another one do not name it: it is the accuracy.
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
    """The result of the run in a folder, whose config.json says the settings."""
    held = workdir.read("config.json")
    return Result(
        config=held["config"],
        overrides=held["overrides"],
        config_hash=held["config_hash"],
        scale=held["config"]["arguments"]["scale"],
        seeds=list(seeds),
        metrics=metrics,
        members=members,
        baselines=baselines or {},
        parameters=parameters or {},
        environment=environment(),
        seconds=seconds,
        **optional,
    )
