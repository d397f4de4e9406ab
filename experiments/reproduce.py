"""Runs what the ledger of the papers still lacks, most informative first, within a time budget.

    python experiments/reproduce.py --paper mixit --scale small --budget 30m --seeds 3

  --paper NAME     mixit, random_attention, two_failure_modes, associations, attention_paths or all
  --scale SCALE    tiny | small (default) | paper; the paper's uses whatever accelerator is there
  --budget TIME    90s, 30m, 2h: no run starts that would not end in time (default: no limit)
  --seeds N        seeds of every run that has seeds (default: what its config says)
  --only TABLE     one table or figure, such as "Table 2"
  --processes N    runs at a time (default 1)
  --workdir DIR    where unfinished runs live (default: runs/reproduce in the repository)
  --list           every table and figure with its runs, their state, time and the verdict
  --dry-run        what would run, in which order, how long

First the tables that lack one or two runs for their verdict, cheap before dear, then the rest; a
run that several tables share runs once. Finished runs are recorded in results/, in place of one
with fewer seeds or of a config that has changed since; `python experiments/report.py` writes the
pages from them. Ctrl-C or SIGTERM saves and stops; the next start goes on with the interrupted run.
A run that fails is named and does not stop the others; the exit code is 1 then.
"""

import functools
import math
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.ledger import read, write
from experiments.ledger.item import Paper
from experiments.ledger.ledger import ledger
from experiments.ledger.rules import NOT_RUN
from experiments.papers import PAPERS
from experiments.schedule import launch, planning, show_plan
from experiments.schedule.estimates import Estimator, Pace
from experiments.schedule.launch import Job, Launcher, Outcome, failures
from experiments.schedule.planning import Todo
from experiments.shared import flags, options
from jaxformer.environment import git
from jaxformer.errors import UserError, unknown
from jaxformer.records import Workdir, write_atomically
from jaxformer.training.progress import clock

SPENT = ".spent"  # in the folder of a run that was stopped and cannot go on: seconds in vain
SCALES = ("tiny", "small", "paper")
DEFAULTS = dict(
    paper="",
    scale="small",
    budget="",
    seeds=0,
    only="",
    processes=1,
    workdir="",
    list=False,
    dry_run=False,
)


def main(argv: Sequence[str], papers: Mapping[str, Paper] = PAPERS) -> int:
    if any(word in options.HELP for word in argv):
        print(__doc__)
        return 0
    try:
        return reproduce(options.parse(argv, DEFAULTS), papers)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def reproduce(asked: Mapping[str, Any], papers: Mapping[str, Paper]) -> int:
    if not asked["paper"]:
        raise UserError(f"say --paper=NAME, one of {', '.join(papers)} or all.")
    if asked["scale"] not in SCALES:
        raise unknown("scale", asked["scale"], SCALES)
    budget = options.seconds("--budget", asked["budget"]) if asked["budget"] else math.inf
    wanted = planning.select(papers, asked["paper"], asked["only"])
    records, problems = read.load(write.RESULTS)
    for problem in problems:
        print(f"warning: not used: {problem}", file=sys.stderr)
    found = planning.todos(wanted, records, asked["scale"], asked["seeds"], Estimator(records))
    root = Path(asked["workdir"] or flags.ROOT / "runs/reproduce")
    jobs = {todo.key: job(todo, root) for todo in found if todo.is_open}
    queue = planning.order(found, wanted)
    # Stable: those that were interrupted first.
    queue.sort(key=lambda todo: not (todo.resumes and jobs[todo.key].is_started()))
    if asked["list"]:
        show_plan.items(wanted, found, ledger(papers, records))
        return 0
    if not queue:
        print(show_plan.nothing_open(found, asked["scale"]))
        return 0
    times = [rest(todo, jobs[todo.key]) for todo in queue]
    if budget < min(times):
        cheapest = queue[times.index(min(times))]
        raise UserError(
            f"a budget of {clock(budget)} is too small: the cheapest of {len(queue)} runs, "
            f"{cheapest.names[0]}, takes about {clock(min(times))}."
        )
    if asked["dry_run"]:
        show_plan.queue(queue, times, budget)
        return 0
    return Reproduction(papers, queue, jobs, budget, asked["processes"]).run()


def job(todo: Todo, root: Path) -> Job:
    """The run of a cell; its folder is its own, so that the next start finds it."""
    return launch.job(todo.names[0], todo.config, todo.overrides, root)._replace(record=True)


def rest(todo: Todo, job: Job) -> float:
    """Seconds that a run still takes, by its own rows if it was interrupted."""
    if is_outdated(job):
        return todo.estimate
    if job.is_finished():
        return min(todo.estimate, 10.0)  # only the record is missing
    if (job.workdir / SPENT).exists():
        return max(todo.estimate, 2 * float((job.workdir / SPENT).read_text()))
    steps = [row["step"] for row in Workdir(job.workdir).rows()]
    if not steps:
        return todo.estimate
    total = Workdir(job.workdir).read("config.json")["config"]["train"]["steps"]
    return todo.estimate * max(1 - max(steps) / total, 0.1)


def is_outdated(job: Job) -> bool:
    """A finished run of other code whose record is gone: somebody wants it made again."""
    if not job.is_finished():
        return False
    then = Workdir(job.workdir).read("result.json")["environment"]["commit"]
    return bool(head()) and then != head()


@functools.cache
def head() -> str:
    """The commit of the code, or "" where there is no git."""
    return git("rev-parse", "HEAD") or ""


class Reproduction:
    """One start of the command: what is left, what it took, how far off the estimates are."""

    def __init__(
        self,
        papers: Mapping[str, Paper],
        queue: list[Todo],
        jobs: dict[str, Job],
        budget: float,
        processes: int = 1,
    ):
        self.papers, self.left, self.jobs, self.processes = papers, list(queue), jobs, processes
        self.n, self.began, self.budget = len(queue), time.monotonic(), budget
        self.pace, self.started = Pace(), 0
        self.now: dict[str, Todo] = {}  # by the folder of its run
        self.outcomes: list[Outcome] = []

    def run(self) -> int:
        total = sum(map(self.seconds, self.left)) / self.processes
        limit = "" if math.isinf(self.budget) else f"; the budget is {clock(self.budget)}"
        print(f"open runs: {self.n}, about {clock(total)}{limit}", flush=True)
        with Launcher(self.processes, self.began + self.budget) as launcher:
            for outcome in launcher.run(self.next_jobs()):
                self.note(outcome)
        failed = failures(self.outcomes)
        stopped = [outcome for outcome in self.outcomes if outcome.stopped]
        done = len(self.outcomes) - len(failed) - len(stopped)
        print(f"ran {done} of {self.n} in {clock(time.monotonic() - self.began)}", end="")
        if self.left or stopped:
            more = sum(map(self.seconds, self.left)) / self.processes
            print(f"; {self.n - done - len(failed)} left, about {clock(more)}", end="")
        print("; `python experiments/report.py` writes the pages." if done else ".")
        for outcome in failed:
            print(f"failed: {outcome.job.name}: {outcome.message} ({outcome.job.log()})")
        return 128 + launcher.signal if launcher.signal else 1 if failed else 0

    def next_jobs(self) -> Iterator[Job]:
        """The first open run that the rest of the budget allows, as long as there is one."""
        while True:
            spare = self.budget - (time.monotonic() - self.began)
            todo = next((t for t in self.left if self.seconds(t) <= spare), None)
            if todo is None:
                return
            self.left.remove(todo)
            self.started += 1
            job = self.jobs[todo.key]
            self.now[str(job.workdir)] = todo
            others = f" (and for {len(todo.names) - 1} more)" if todo.names[1:] else ""
            long, more = self.seconds(todo), sum(map(self.seconds, self.left)) / self.processes
            then = f"; then {clock(more)} more" if more else ""
            if is_outdated(job):
                shutil.rmtree(job.workdir)
            goes_on = "goes on, " if todo.resumes and job.is_started() else ""
            print(
                f"run {self.started} of {self.n}: {todo.names[0]}{others}: {goes_on}about "
                f"{clock(long)}{then}",
                flush=True,
            )
            yield job

    def seconds(self, todo: Todo) -> float:
        """The estimate, corrected by what the runs so far took beside theirs."""
        return rest(todo, self.jobs[todo.key]) * self.pace.ratio

    def note(self, outcome: Outcome) -> None:
        todo = self.now.pop(str(outcome.job.workdir))
        self.outcomes.append(outcome)
        if outcome.stopped:
            if not todo.resumes and outcome.job.is_started():
                write_atomically(outcome.job.workdir / SPENT, f"{outcome.seconds:.0f}".encode())
            how = "goes on with it" if todo.resumes else "begins it anew: it cannot be saved"
            print(f"  stopped; the next start {how}", flush=True)
            return
        if outcome.code:
            print(f"  failed: {outcome.message}", flush=True)
            return
        self.pace.add(todo.estimate, outcome.seconds)
        replace(todo, outcome.job)
        records, _ = read.load(write.RESULTS)
        rows = [row for row in ledger(self.papers, records) if self.concerns(row, todo)]
        verdicts = {f"{r.item.name}: {r.verdict}" for r in rows if r.verdict != NOT_RUN}
        said = show_plan.headline(outcome.job, rows[0].item.metric if rows else "accuracy")
        print("  " + "; ".join([f"{said}in {clock(outcome.seconds)}", *sorted(verdicts)]))
        sys.stdout.flush()

    @staticmethod
    def concerns(row, todo: Todo) -> bool:
        return any(name.startswith(f"{row.paper.key} {row.item.name}: ") for name in todo.names)


def replace(todo: Todo, job: Job) -> None:
    """Removes the records that this one makes superfluous: fewer seeds, or a config of the past."""
    held = Workdir(job.workdir).read("config.json")
    mine = write.place(held["config"], held["config_hash"])
    for record in todo.replaces:
        old = write.place(record.config, record.config_hash)
        if old != mine and mine.exists():
            for suffix in write.SUFFIXES:
                write.beside(old, suffix).unlink(missing_ok=True)
            print(f"  replaces {old.name}")


if __name__ == "__main__":
    launch.leave_accelerators()
    sys.exit(main(sys.argv[1:]))
