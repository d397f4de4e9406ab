"""Runs jobs with an executor and prints their estimated times, progress and failures, such as:

run 2 of 4: Standard: about 15 s; then 30 s more
  Standard: 12 s
ran 3 of 4 in 40 s; 1 left, about 15 s. Run the same command again: it resumes.
failed: MixiT: the field x must be 1, got 2. (runs/mixit.log)
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence

from experiments.schedule.devices import Slot
from experiments.schedule.executor import Executor
from experiments.schedule.jobs import Job, Outcome
from experiments.schedule.launch import LocalExecutor
from jaxformer.core.errors import UserError
from jaxformer.core.text_format import duration
from jaxformer.io.atomic_files import write_atomically
from jaxformer.io.run_folder import Workdir

# The file with the seconds that a stopped run took, in the folder of a run that cannot resume.
SPENT_FILE = ".spent"
# Estimates are multiplied by (time that finished runs took) / (time estimated for these runs). The
# seconds below are added to both times, so that one short run hardly changes the factor.
PRIOR_SECONDS = 60.0
RECORDING_SECONDS = 10.0  # the time that recording a finished run takes
RESUME_HINT = "Run the same command again: it resumes."


def run_all(
    jobs: Sequence[Job],
    slots: Sequence[Slot] | int = 1,
    budget: float = math.inf,
    describe_success: Callable[[Outcome], str] | None = None,
    make_executor: Callable[..., Executor] | None = None,
) -> int:
    """Runs jobs until all have ended or the time budget is used up.

    The next job is always the first one that fits into the rest of the budget.

    Args:
        jobs: the jobs, in the order in which they should start.
        slots: the slots, or their number on a CPU.
        budget: seconds.
        describe_success: a function that returns the line to print for a successful job; None
            prints its name and its time.
        make_executor: a function of (slots, deadline); None is `LocalExecutor`.

    Returns:
        The exit code: 0, 1 if a job failed, or 128 + the signal that stopped the executor.
    """
    n_slots = slots if isinstance(slots, int) else len(slots)
    began = time.monotonic()
    remaining, stopped, failed = list(jobs), [], []
    estimated = actual = PRIOR_SECONDS

    def corrected_seconds(*unfinished: Job) -> float:
        """Returns the remaining time, scaled by the error of the estimates so far."""
        return sum(map(remaining_seconds, unfinished)) * actual / estimated

    def next_jobs() -> Iterator[Job]:
        while True:
            seconds_left = budget - (time.monotonic() - began)
            fitting = (job for job in remaining if corrected_seconds(job) <= seconds_left)
            job = next(fitting, None)
            if job is None:
                return
            remaining.remove(job)
            will_resume = job.resumes and job.is_started() and not job.restart
            then_text = ""
            if remaining:
                then_text = f"; then {duration(corrected_seconds(*remaining) / n_slots)} more"
            print(
                f"run {len(jobs) - len(remaining)} of {len(jobs)}: {job.name}: "
                f"{'resumes, ' * will_resume}about {duration(corrected_seconds(job))}{then_text}",
                flush=True,
            )
            yield job

    if not jobs:
        return 0
    with (make_executor or LocalExecutor)(slots, began + budget) as executor:
        for outcome in executor.run(next_jobs()):
            if outcome.by_other_launcher:
                if outcome.code:
                    stopped.append(outcome.job)
                print(f"  {outcome.job.name}: {outcome.message}", flush=True)
            elif outcome.code == 0:
                estimated, actual = estimated + outcome.job.seconds, actual + outcome.seconds
                line = f"{outcome.job.name}: {duration(outcome.seconds)}"
                print(f"  {describe_success(outcome) if describe_success else line}", flush=True)
            elif outcome.stopped:
                stopped.append(outcome.job)
                print(f"  {outcome.job.name}: {_record_stop(outcome)}", flush=True)
            else:
                failed.append(outcome)
                print(f"  {outcome.job.name} failed: {outcome.message}", flush=True)
    remaining += stopped
    elapsed = duration(time.monotonic() - began)
    done = len(jobs) - len(remaining) - len(failed)
    if remaining:
        time_left = duration(corrected_seconds(*remaining) / n_slots)
        rest = f"; {len(remaining)} left, about {time_left}. {RESUME_HINT}"
    else:
        rest = "."
    print(f"ran {done} of {len(jobs)} in {elapsed}{rest}")
    for outcome in failed:
        print(f"failed: {outcome.job.name}: {outcome.message} ({outcome.job.log()})")
    if executor.signal:
        return 128 + executor.signal
    return 1 if failed else 0


def check_budget(
    budget: float, jobs: Sequence[Job], name: Callable[[Job], str] = lambda job: job.name
) -> None:
    """Raises UserError if the budget, in seconds, is too small for every job."""
    cheapest = min(jobs, key=remaining_seconds)
    if budget < remaining_seconds(cheapest):
        raise UserError(
            f"a budget of {duration(budget)} is too small: the cheapest of {len(jobs)} runs, "
            f"{name(cheapest)}, takes about {duration(remaining_seconds(cheapest))}."
        )


def parallel_seconds(jobs: Sequence[Job], n_slots: int) -> float:
    """Returns a lower bound of the seconds that jobs take in parallel slots."""
    times = [remaining_seconds(job) for job in jobs]
    return max(sum(times) / n_slots, *times, 0.0)


def remaining_seconds(job: Job) -> float:
    """Returns the seconds that a job still takes.

    For an interrupted job they follow from the last step in its rows of metrics.
    """
    if job.restart:
        return job.seconds
    if job.is_finished():
        return min(job.seconds, RECORDING_SECONDS)
    # The run restarts and needs more than the time after which it was stopped.
    if (job.workdir / SPENT_FILE).exists():
        return max(job.seconds, 2 * float((job.workdir / SPENT_FILE).read_text()))
    steps = [row["step"] for row in Workdir(job.workdir).rows()]
    if not steps:
        return job.seconds
    total = Workdir(job.workdir).read("config.json")["config"]["train"]["steps"]
    return job.seconds * max(1 - max(steps) / total, 0.1)


def _record_stop(outcome: Outcome) -> str:
    """Stores the time of a stopped run that cannot resume; returns the line to print."""
    job = outcome.job
    if job.resumes:
        return "stopped; the next start resumes it"
    if job.is_started():
        write_atomically(job.workdir / SPENT_FILE, f"{outcome.seconds:.0f}".encode())
    return "stopped; the next start runs it from the beginning: its recipe saves no checkpoint"
