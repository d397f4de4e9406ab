"""Runs jobs, each announced with its time, until all have ended or the budget is used up.

run 2 of 4: Standard: about 15 s; then 30 s more
  Standard: 12 s
ran 3 of 4 in 40 s; 1 left, about 15 s: the same command goes on.
failed: MixiT: the field x must be 1, got 2. (runs/mixit.log)
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence

from experiments.schedule.devices import Place
from experiments.schedule.jobs import Job, Outcome
from experiments.schedule.launch import Launcher
from jaxformer.core.errors import UserError
from jaxformer.core.text_format import duration
from jaxformer.io.atomic_files import write_atomically
from jaxformer.io.run_folder import Workdir

SPENT = ".spent"  # in the folder of a run that was stopped and must begin anew: the seconds it took
TRUST = 60.0  # seconds that ran as estimated, so that one short run does not upset all others


def run_all(
    jobs: Sequence[Job],
    places: Sequence[Place] | int = 1,
    budget: float = math.inf,
    ended: Callable[[Outcome], str] = lambda outcome: (
        f"{outcome.job.name}: {duration(outcome.seconds)}"
    ),
    launch: Callable[..., Launcher] | None = None,
) -> int:
    """The exit code: 0, 1 if a job failed, 128 + the signal that stopped it.

    The next job is the first that the rest of the budget allows. `ended` says what came of one that
    succeeded. `launch(places, deadline)` runs them, in processes of this machine unless it is said.
    """
    processes = places if isinstance(places, int) else len(places)
    left, stopped, failed, began = list(jobs), [], [], time.monotonic()
    estimated = actual = TRUST

    def seconds(*some: Job) -> float:
        """What they take, corrected by what the runs so far took beside their estimates."""
        return sum(map(rest, some)) * actual / estimated

    def announced() -> Iterator[Job]:
        while True:
            spare = budget - (time.monotonic() - began)
            job = next((job for job in left if seconds(job) <= spare), None)
            if job is None:
                return
            left.remove(job)
            goes_on = "goes on, " if job.resumes and job.is_started() and not job.anew else ""
            then = f"; then {duration(seconds(*left) / processes)} more" if left else ""
            print(
                f"run {len(jobs) - len(left)} of {len(jobs)}: {job.name}: {goes_on}about "
                f"{duration(seconds(job))}{then}",
                flush=True,
            )
            yield job

    if not jobs:
        return 0
    with (launch or Launcher)(places, began + budget) as launcher:
        for outcome in launcher.run(announced()):
            if outcome.elsewhere:
                stopped += [outcome.job] * bool(outcome.code)
                print(f"  {outcome.job.name}: {outcome.message}", flush=True)
            elif outcome.code == 0:
                estimated, actual = estimated + outcome.job.seconds, actual + outcome.seconds
                print(f"  {ended(outcome)}", flush=True)
            elif outcome.stopped:
                stopped.append(outcome.job)
                print(f"  {outcome.job.name}: {_stopped(outcome)}", flush=True)
            else:
                failed.append(outcome)
                print(f"  {outcome.job.name} failed: {outcome.message}", flush=True)
    left += stopped
    spent, done = duration(time.monotonic() - began), len(jobs) - len(left) - len(failed)
    more = f"; {len(left)} left, about {duration(seconds(*left) / processes)}: " if left else "."
    print(f"ran {done} of {len(jobs)} in {spent}{more}{'the same command goes on.' * bool(left)}")
    for outcome in failed:
        print(f"failed: {outcome.job.name}: {outcome.message} ({outcome.job.log()})")
    return 128 + launcher.signal if launcher.signal else 1 if failed else 0


def check_budget(
    budget: float, jobs: Sequence[Job], name: Callable[[Job], str] = lambda job: job.name
) -> None:
    """Raises if the budget, in seconds, is too small for any of the jobs."""
    cheapest = min(jobs, key=rest)
    if budget < rest(cheapest):
        raise UserError(
            f"a budget of {duration(budget)} is too small: the cheapest of {len(jobs)} runs, "
            f"{name(cheapest)}, takes about {duration(rest(cheapest))}."
        )


def together(jobs: Sequence[Job], places: int) -> float:
    """Seconds that they still take, so many at a time: at least those of the longest."""
    times = [rest(job) for job in jobs]
    return max(sum(times) / places, *times, 0.0)


def rest(job: Job) -> float:
    """Seconds that a job still takes, by its own rows if it was interrupted."""
    if job.anew:
        return job.seconds
    if job.is_finished():
        return min(job.seconds, 10.0)  # only the record is missing
    if (job.workdir / SPENT).exists():
        return max(job.seconds, 2 * float((job.workdir / SPENT).read_text()))
    steps = [row["step"] for row in Workdir(job.workdir).rows()]
    if not steps:
        return job.seconds
    total = Workdir(job.workdir).read("config.json")["config"]["train"]["steps"]
    return job.seconds * max(1 - max(steps) / total, 0.1)


def _stopped(outcome: Outcome) -> str:
    job = outcome.job
    if job.resumes:
        return "stopped; the next start goes on with it"
    if job.is_started():
        write_atomically(job.workdir / SPENT, f"{outcome.seconds:.0f}".encode())
    return "stopped; the next start begins it anew: it cannot be saved"
