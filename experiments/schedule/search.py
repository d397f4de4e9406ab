"""A search in place of a grid that is too large: Optuna proposes, runs answer.

    --search=tpe --trials=50        or --search=random
    --grid FIELD=A,B                choices; {A,B} in --config are choices too
    --range FIELD=LOW:HIGH          numbers between; whole ones if both are, LOW:HIGH:log evenly
                                    over the powers of ten

What is maximised is the validation accuracy, averaged over the seeds. A run whose members all
diverge counts as pruned; one that reaches its target ends there (train.target). The study lies in
ROOT/search.journal: the same command goes on with it, and with the runs that were interrupted, and
several launchers may share it.
"""

import math
import re
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.schedule import sweep_table
from experiments.schedule.devices import Place
from experiments.schedule.grids import Run, braces
from experiments.schedule.jobs import Job, Outcome, settings
from experiments.schedule.launch import Launcher
from jaxformer.core.errors import UserError, check_choice
from jaxformer.core.text_format import duration

JOURNAL = "search.journal"
SAMPLERS = ("tpe", "random")
DIVERGED = "the loss was not finite"  # how the error of a run begins that diverged
CONFIG = "config"  # the parameter for the braces of --config


class Range(NamedTuple):
    """Numbers between two bounds."""

    low: float
    high: float
    whole: bool
    log: bool


Space = dict[str, "Range | list[str]"]


def ranges(words: Sequence[str]) -> dict[str, Range]:
    """{"model.layers": Range} of ["model.layers=1:4"]."""
    found = {}
    for word in words:
        field, _, text = word.partition("=")
        parts = text.split(":")
        if field in found:
            raise UserError(f"--range {field} is given twice.")
        try:
            low, high = map(float, parts[:2])
        except ValueError:
            low, high = math.nan, math.nan
        is_log = parts[2:] == ["log"]
        if not (field and low < high and math.isfinite(high - low)) or parts[2:] not in (
            [],
            ["log"],
        ):
            raise UserError(
                f"--range must be FIELD=LOW:HIGH or FIELD=LOW:HIGH:log, got {word!r:.200}."
            )
        if is_log and low <= 0:
            raise UserError(f"--range {field} is logarithmic, so LOW must be above 0, got {low:g}.")
        whole = all(re.fullmatch(r"-?\d+", part) for part in parts[:2])
        found[field] = Range(low, high, whole, is_log)
    return found


def space(config: str, grid: Mapping[str, Sequence[str]], asked: Namespace) -> Space:
    """What Optuna may choose from."""
    found: Space = {field: list(values) for field, values in grid.items()}
    for field, between in ranges(asked.range).items():
        if field in found:
            raise UserError(f"{field} has a --grid and a --range; give one.")
        found[field] = between
    configs = braces(config)
    if configs[1:]:
        found[CONFIG] = configs
    if not found:
        raise UserError("nothing to search: give --range FIELD=LOW:HIGH or --grid FIELD=A,B.")
    return found


def run_of(config: str, chosen: Mapping[str, Any], fields: Mapping[str, str]) -> Run:
    """The run that a proposal stands for."""
    varied = {}
    for field, value in chosen.items():
        if field != CONFIG:
            text = f"{value:.6g}" if isinstance(value, float) else str(value)
            names = field.split("+")
            parts = text.split("+") if names[1:] else [text]
            if len(names) != len(parts):
                raise UserError(
                    f"--grid {field} needs {len(names)} numbers joined by +, got {text!r}."
                )
            varied |= dict(zip(names, parts))
    rate = {name: f"{text}," for name, text in varied.items() if name == "optim.learning_rate"}
    return Run(str(chosen.get(CONFIG, braces(config)[0])), {**fields, **varied, **rate}, varied)


class Search:
    """A study of Optuna and the runs that it asked for."""

    def __init__(self, asked: Namespace, config: str, space: Space, fields: Mapping[str, str]):
        self.optuna = _optuna()
        self.trials, self.config, self.fields, self.space = asked.trials, config, fields, space
        asked.workdir.mkdir(parents=True, exist_ok=True)
        storages = self.optuna.storages
        backend = storages.journal.JournalFileBackend(str(asked.workdir / JOURNAL))
        self.study = self.optuna.create_study(
            study_name="search",
            storage=storages.JournalStorage(backend),
            direction="maximize",
            load_if_exists=True,
        )
        # Another seed at every start: the same one would propose the same again.
        seed = len(self.study.trials)
        samplers = self.optuna.samplers
        self.study.sampler = (
            samplers.RandomSampler(seed=seed)
            if asked.search == "random"
            else samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)
        )
        said = {name: str(value) for name, value in {**space, "config of all": config}.items()}
        if self.study.user_attrs.get("space", said) != said:
            raise UserError(f"{asked.workdir} holds another search; give another --workdir.")
        self.study.set_user_attr("space", said)
        self.numbers: dict[Path, list[int]] = {}  # the trials of a run's folder

    def left(self) -> int:
        """How many trials are still to be proposed."""
        state, trials = self.optuna.trial.TrialState, self.study.get_trials(deepcopy=False)
        # A launcher that dies while it asks leaves a trial without all of its parameters.
        halves = [t for t in trials if t.state == state.RUNNING and len(t.params) < len(self.space)]
        return self.trials - len(trials) + len(halves)  # one that failed counts too

    def jobs(self, job: Callable[[Run], Job]) -> Iterator[Job]:
        """Those that were interrupted, then proposals, each when a place is free for it."""
        running = self.optuna.trial.TrialState.RUNNING
        for trial in self.study.get_trials(states=(running,)):
            if len(trial.params) == len(self.space):
                yield self._taken(trial.number, trial.params, job)
        while self.left() > 0:
            trial = self.study.ask()
            yield self._taken(
                trial.number, {n: _chosen(trial, n, s) for n, s in self.space.items()}, job
            )

    def _taken(self, number: int, chosen: Mapping[str, Any], job: Callable[[Run], Job]) -> Job:
        made = job(run_of(self.config, chosen, self.fields))
        self.numbers.setdefault(made.workdir, []).append(number)
        print(f"trial {number + 1} of {self.trials}: {made.name}", flush=True)
        return made

    def tell(self, outcome: Outcome, run: Run) -> str:
        """The value of the trials that asked for this run, or what became of it."""
        state, value, said = self.optuna.trial.TrialState, None, outcome.message
        if outcome.code == 0:
            rows = sweep_table.gather([(run, outcome.job)])
            best = max(rows, key=lambda row: row.goodness)
            said = "pruned"
            if best.validation and math.isfinite(best.goodness):
                value = best.goodness
                time = duration(outcome.seconds)
                said = f"validation {best.score} {best.validation.mean:.4g} in {time}"
        elif outcome.stopped:
            return "stopped; the next start goes on with it"
        pruned = outcome.code == 0 or DIVERGED in outcome.message
        ended = state.COMPLETE if value is not None else state.PRUNED if pruned else state.FAIL
        for number in self.numbers.pop(outcome.job.workdir, []):
            self.study.tell(number, value, state=ended, skip_if_finished=True)
        return said if ended != state.FAIL else f"failed: {said}"


def run_search(
    search: Search, places: Sequence[Place], job: Callable[[Run], Job], runs: dict[Path, Run]
) -> int:
    """Runs all trials; `runs` is filled with the run of each folder. The exit code."""
    failed = 0

    def remembered(run: Run) -> Job:
        made = job(run)
        runs[made.workdir] = run
        return made

    with Launcher(places) as launcher:
        for outcome in launcher.run(search.jobs(remembered)):
            said = search.tell(outcome, runs[outcome.job.workdir])
            failed += said.startswith("failed: ")
            print(f"  {outcome.job.name}: {said}", flush=True)
    if launcher.signal:
        print("the same command goes on with the search.")
        return 128 + launcher.signal
    return 1 if failed else 0


def check(asked: Namespace, config: str, space: Space, fields: Mapping[str, str]) -> None:
    """Raises if a run at the ends of the space cannot be built."""
    check_choice("--search", asked.search, SAMPLERS)
    if asked.executor != "local":
        raise UserError(
            "--search proposes a run when another has ended, on this machine: leave out --executor."
        )
    for end in (0, -1):
        chosen = {n: s[end] if isinstance(s, list) else _end(s, end) for n, s in space.items()}
        run = run_of(config, chosen, fields)
        settings(run.config, run.overrides)
    _optuna()


def words(choice: Range | list[str]) -> str:
    """ "1e-05 to 0.1, by powers" or "a, b"."""
    if isinstance(choice, list):
        return ", ".join(choice)
    return f"{choice.low:g} to {choice.high:g}" + ", by powers" * choice.log


def _end(between: Range, end: int) -> float | int:
    value = between.high if end else between.low
    return int(value) if between.whole else value


def _optuna() -> Any:
    try:
        import optuna
    except ModuleNotFoundError:
        raise UserError("--search needs optuna: pip install 'jaxformer[search]'.") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _chosen(trial: Any, field: str, said: Range | list[str]) -> Any:
    if isinstance(said, list):
        return trial.suggest_categorical(field, said)
    if said.whole:
        return trial.suggest_int(field, int(said.low), int(said.high), log=said.log)
    return trial.suggest_float(field, said.low, said.high, log=said.log)
