"""Hyperparameter search with Optuna, for spaces that are too large for a grid.

The search space consists of the choices of --grid, the choices in braces of --config, and the
intervals of --range. An interval with two integer bounds contains integers only.

The objective is the validation metric of a run's best learning rate, averaged over seeds. A run
whose members all diverge counts as pruned. A run ends when it reaches its target (train.target).
The study is stored in ROOT/search.journal. Run the same command again: it resumes the study and its
interrupted runs. Several launchers may share a study.
"""

import math
import re
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.schedule import sweep_table
from experiments.schedule.devices import Slot
from experiments.schedule.grids import RATE, Run, expand_braces, split_joined_fields
from experiments.schedule.jobs import Job, Outcome, config_dict
from experiments.schedule.launch import LocalExecutor
from experiments.schedule.search_journal import open_study
from jaxformer.core.errors import UserError, check_choice
from jaxformer.core.text_format import duration

SAMPLERS = ("tpe", "random")
DIVERGED_MESSAGE = "the loss was not finite"  # the beginning of the error of a diverged run
CONFIG = "config"  # the Optuna parameter for the braces of --config


class Range(NamedTuple):
    """An interval of numbers; on a logarithmic scale if `is_log`."""

    low: float
    high: float
    is_integer: bool
    is_log: bool


Choice = Range | list[str]
Space = dict[str, Choice]


def parse_ranges(arguments: Sequence[str]) -> dict[str, Range]:
    """Returns {"model.layers": Range(1, 4, ..)} for ["model.layers=1:4"]."""
    ranges = {}
    for argument in arguments:
        field, _, text = argument.partition("=")
        low_text, _, high_text = text.partition(":")
        high_text, _, suffix = high_text.partition(":")
        if field in ranges:
            raise UserError(f"--range {field} is given twice.")
        try:
            low, high = float(low_text), float(high_text)
        except ValueError:
            low, high = math.nan, math.nan
        is_interval = low < high and math.isfinite(high - low)
        if not (field and is_interval and suffix in ("", "log")) or text.endswith(":"):
            raise UserError(
                f"--range must be FIELD=LOW:HIGH or FIELD=LOW:HIGH:log, got {argument!r:.200}."
            )
        if suffix and low <= 0:
            raise UserError(f"--range {field} is logarithmic, so LOW must be above 0, got {low:g}.")
        is_integer = all(re.fullmatch(r"-?\d+", bound) for bound in (low_text, high_text))
        ranges[field] = Range(low, high, is_integer, bool(suffix))
    return ranges


def search_space(config: str, grid: Mapping[str, Sequence[str]], args: Namespace) -> Space:
    """Returns the search space of the flags --config, --grid and --range."""
    space: Space = {field: list(values) for field, values in grid.items()}
    for field, bounds in parse_ranges(args.range).items():
        if field in space:
            raise UserError(f"{field} has a --grid and a --range; give one.")
        space[field] = bounds
    configs = expand_braces(config)
    if configs[1:]:
        space[CONFIG] = configs
    if not space:
        raise UserError("nothing to search: give --range FIELD=LOW:HIGH or --grid FIELD=A,B.")
    return space


def run_of_params(config: str, params: Mapping[str, Any], fields: Mapping[str, str]) -> Run:
    """Returns the run of a trial's parameters."""
    varied: dict[str, str] = {}
    for field, value in params.items():
        if field != CONFIG:
            text = f"{value:.6g}" if isinstance(value, float) else str(value)
            varied |= split_joined_fields(field, text)
    rate = {RATE: f"{varied[RATE]},"} if RATE in varied else {}
    chosen_config = str(params.get(CONFIG, expand_braces(config)[0]))
    return Run(chosen_config, {**fields, **varied, **rate}, varied)


class Search:
    """An Optuna study and its runs.

    Args:
        args: the flags --search, --trials and --workdir.
        config: "FILE:ARGUMENTS" with choices in braces.
        space: the search space.
        fields: overrides that all runs share.
    """

    def __init__(self, args: Namespace, config: str, space: Space, fields: Mapping[str, str]):
        self.optuna = _import_optuna()
        self.trials, self.config, self.fields, self.space = args.trials, config, fields, space
        args.workdir.mkdir(parents=True, exist_ok=True)
        self.study = open_study(self.optuna, args.workdir)
        # With the same seed at every start the sampler would propose the same trials again.
        seed = len(self.study.trials)
        samplers = self.optuna.samplers
        self.study.sampler = (
            samplers.RandomSampler(seed=seed)
            if args.search == "random"
            else samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)
        )
        description = {name: str(choice) for name, choice in space.items()}
        description["config of all"] = config
        if self.study.user_attrs.get("space", description) != description:
            raise UserError(f"{args.workdir} holds another search; give another --workdir.")
        self.study.set_user_attr("space", description)
        self.trials_of_folder: dict[Path, list[int]] = {}  # equal parameters share a folder

    def remaining_trials(self) -> int:
        """Returns the number of trials still to propose; failed trials count as proposed."""
        running = self.optuna.trial.TrialState.RUNNING
        trials = self.study.get_trials(deepcopy=False)
        # A launcher that dies during a proposal leaves a trial without all of its parameters.
        partial = [t for t in trials if t.state == running and len(t.params) < len(self.space)]
        return self.trials - len(trials) + len(partial)

    def jobs(self, job_of_run: Callable[[Run], Job]) -> Iterator[Job]:
        """Yields the jobs of interrupted trials, then a proposal whenever a slot is free."""
        running = self.optuna.trial.TrialState.RUNNING
        for trial in self.study.get_trials(states=(running,)):
            if len(trial.params) == len(self.space):
                yield self._job_of_trial(trial.number, trial.params, job_of_run)
        while self.remaining_trials() > 0:
            trial = self.study.ask()
            params = {name: suggest(trial, name, choice) for name, choice in self.space.items()}
            yield self._job_of_trial(trial.number, params, job_of_run)

    def _job_of_trial(
        self, number: int, params: Mapping[str, Any], job_of_run: Callable[[Run], Job]
    ) -> Job:
        job = job_of_run(run_of_params(self.config, params, self.fields))
        self.trials_of_folder.setdefault(job.workdir, []).append(number)
        print(f"trial {number + 1} of {self.trials}: {job.name}", flush=True)
        return job

    def record_outcome(self, outcome: Outcome, run: Run) -> str:
        """Reports the value of a run to its trials; returns a line with the value or the error."""
        states = self.optuna.trial.TrialState
        value, message = None, outcome.message
        if outcome.code == 0:
            best = max(sweep_table.rows_of_runs([(run, outcome.job)]), key=lambda row: row.fitness)
            message = "pruned"
            if best.validation and math.isfinite(best.fitness):
                value = best.fitness
                time = duration(outcome.seconds)
                message = (
                    f"validation {best.validation_metric} {best.validation.mean:.4g} in {time}"
                )
        elif outcome.stopped:
            return "stopped; the next start resumes it"
        if value is not None:
            state = states.COMPLETE
        elif outcome.code == 0 or DIVERGED_MESSAGE in outcome.message:
            state = states.PRUNED
        else:
            state = states.FAIL
        for number in self.trials_of_folder.pop(outcome.job.workdir, []):
            self.study.tell(number, value, state=state, skip_if_finished=True)
        return f"failed: {message}" if state == states.FAIL else message


def run_search(
    search: Search, slots: Sequence[Slot], job_of_run: Callable[[Run], Job], runs: dict[Path, Run]
) -> int:
    """Runs all trials and fills `runs` with the run of each folder; returns the exit code."""
    failed = 0

    def remember_run(run: Run) -> Job:
        job = job_of_run(run)
        runs[job.workdir] = run
        return job

    with LocalExecutor(slots) as executor:
        for outcome in executor.run(search.jobs(remember_run)):
            message = search.record_outcome(outcome, runs[outcome.job.workdir])
            failed += message.startswith("failed: ")
            print(f"  {outcome.job.name}: {message}", flush=True)
    if executor.signal:
        print("Run the same command again: it resumes the search.")
        return 128 + executor.signal
    return 1 if failed else 0


def check(args: Namespace, config: str, space: Space, fields: Mapping[str, str]) -> None:
    """Raises UserError if the configs at both ends of the space cannot be built."""
    check_choice("--search", args.search, SAMPLERS)
    if args.executor != "local":
        raise UserError(
            "--search proposes a run whenever another one ends, and works only on this machine: "
            "leave out --executor."
        )
    for end in (0, -1):  # the first and the last value of each field
        params = {name: _bound(choice, end) for name, choice in space.items()}
        run = run_of_params(config, params, fields)
        config_dict(run.config, run.overrides)
    _import_optuna()


def describe_choice(choice: Choice) -> str:
    """Returns "1e-05 to 0.1, logarithmic" or "a, b"."""
    if isinstance(choice, list):
        return ", ".join(choice)
    return f"{choice.low:g} to {choice.high:g}" + ", logarithmic" * choice.is_log


def suggest(trial: Any, field: str, choice: Choice) -> Any:
    """Draws the value of a field from an Optuna trial."""
    if isinstance(choice, list):
        return trial.suggest_categorical(field, choice)
    if choice.is_integer:
        return trial.suggest_int(field, int(choice.low), int(choice.high), log=choice.is_log)
    return trial.suggest_float(field, choice.low, choice.high, log=choice.is_log)


def _bound(choice: Choice, end: int) -> Any:
    if isinstance(choice, list):
        return choice[end]
    value = choice.high if end else choice.low
    return int(value) if choice.is_integer else value


def _import_optuna() -> Any:
    try:
        import optuna
    except ModuleNotFoundError:
        raise UserError("--search needs optuna: pip install 'jaxformer[search]'.") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
