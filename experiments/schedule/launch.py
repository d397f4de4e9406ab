"""The local executor: runs each job as a process `run.py` of this machine.

    with LocalExecutor(devices.cpu_slots(2)) as executor:
        for outcome in executor.run(jobs):
            ..

SIGINT, SIGTERM and SIGHUP are passed to the running jobs, which save and stop. No further job is
started. The same jobs can be resumed from their folders. A second signal stops them at once.

Several launchers may work on the same folders. A job that another launcher runs is deferred until
the others have ended. Then it is either finished or resumed here.
"""

import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import jax

from experiments.schedule import child, devices
from experiments.schedule.devices import Slot
from experiments.schedule.jobs import Job, Outcome, config_dict, handle_stop_signals, make_job
from experiments.schedule.show_runs import Board

__all__ = ["Job", "LocalExecutor", "Outcome", "config_dict", "make_job", "use_cpu_only"]

PROGRAM: tuple[str, ...] = (sys.executable, str(Path(__file__).parents[1] / "run.py"))
POLL_SECONDS = 0.1  # between two checks of the running jobs
DEFERRED_POLL_SECONDS = 1.0  # between two checks of the jobs of other launchers
DONE_ELSEWHERE = "another launcher finished it"
LOCKED_MESSAGE = "is in use by process"  # in the error of a run whose folder is locked


class Running(NamedTuple):
    """A job, the time when it started, and its slot."""

    job: Job
    began: float
    slot: Slot


class LocalExecutor:
    """Runs one job at a time in each slot. It implements `jobs.Executor`.

    Args:
        slots: the slots, or their number on a CPU.
        deadline: the time (`time.monotonic`) at which all running jobs are stopped.
    """

    def __init__(self, slots: Sequence[Slot] | int = 1, deadline: float = math.inf):
        self.free = devices.cpu_slots(slots) if isinstance(slots, int) else list(slots)
        self.free.reverse()  # `pop` takes the first slot first
        self.deadline, self.signal = deadline, 0
        self.running: dict[subprocess.Popen, Running] = {}
        self.deferred: list[Job] = []  # jobs of other launchers
        self.last_deferred_poll = -math.inf
        self.board = Board()

    def __enter__(self) -> "LocalExecutor":
        self._handlers = ExitStack()
        self._handlers.enter_context(handle_stop_signals(self._forward_signal))
        return self

    def __exit__(self, *_: object) -> None:
        self.board.clear()
        for process in self.running:
            process.terminate()
        for process in self.running:
            process.wait()
        self._handlers.close()

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        """Yields the outcome of each job when it ends.

        The next job is drawn from `jobs` only when a slot is free.
        """
        waiting, has_more = iter(jobs), True
        while True:
            while has_more and self.free and not self.signal:
                if (job := next(waiting, None)) is None:
                    has_more = False
                elif job.is_finished() and not (job.record or job.restart):
                    # Another launcher finished it after the list of jobs was made.
                    yield Outcome(job, 0, 0.0, DONE_ELSEWHERE, by_other_launcher=True)
                elif not self._start(job):
                    self._defer(job)
            has_more = has_more and not self.signal
            yield from self._collect_ended()
            if not has_more:
                yield from self._poll_deferred()
            if not (has_more or self.running or self.deferred):
                return
            if has_more and self.free:
                continue
            time.sleep(POLL_SECONDS)
            if time.monotonic() > self.deadline:
                self._send(signal.SIGTERM)
                self.deadline = math.inf  # a second signal would not let the run save
                has_more = False
                yield from self._give_up_deferred()
            if self.board.is_due():
                self.board.show([*self.running.values()], len(self.free), len(self.deferred))

    def _collect_ended(self) -> Iterator[Outcome]:
        for process in [p for p in self.running if p.poll() is not None]:
            job, began, slot = self.running.pop(process)
            self.free.append(slot)
            self.board.clear()
            code, elapsed = process.returncode, time.monotonic() - began
            message = job.last_message(code)
            if code == 2 and LOCKED_MESSAGE in message and job.is_locked():
                self._defer(job)
                continue
            yield Outcome(job, code, elapsed, message)

    def _poll_deferred(self) -> Iterator[Outcome]:
        """Collects deferred jobs that are finished and starts those that are free again."""
        if self.signal:
            yield from self._give_up_deferred()
        if time.monotonic() - self.last_deferred_poll < DEFERRED_POLL_SECONDS:
            return
        self.last_deferred_poll = time.monotonic()
        for job in list(self.deferred):
            if job.is_finished() and not job.is_locked():
                self.deferred.remove(job)
                yield Outcome(job, 0, 0.0, DONE_ELSEWHERE, by_other_launcher=True)
            elif self.free and self._start(job):
                self.deferred.remove(job)
                self.board.clear()
                print(f"  {job.name}: the other launcher left it; it resumes here", flush=True)

    def _give_up_deferred(self) -> Iterator[Outcome]:
        for job in self.deferred:
            message = "another launcher still runs it"
            yield Outcome(job, -signal.SIGTERM, 0.0, message, by_other_launcher=True)
        self.deferred = []

    def _defer(self, job: Job) -> None:
        self.board.clear()
        print(f"  {job.name}: skipped, another launcher runs it", flush=True)
        self.deferred.append(job)

    def _start(self, job: Job) -> bool:
        """Starts a job in a free slot; returns False if another launcher or run has it."""
        if (log := job.claim_log()) is None:
            return False
        if job.restart:
            shutil.rmtree(job.workdir, ignore_errors=True)
        slot = self.free.pop()
        with log:
            process = subprocess.Popen(
                child.tied_command([*PROGRAM, *job.arguments()], slot.cores),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=run_environment(slot),
                start_new_session=True,  # Ctrl-C reaches the run only through the launcher
            )
        self.running[process] = Running(job, time.monotonic(), slot)
        return True

    def _forward_signal(self, number: int, frame: FrameType | None) -> None:
        if not self.signal:
            print("\nstopping; once more to stop at once", file=sys.stderr)
        self.signal = number
        self._send(signal.SIGTERM)

    def _send(self, number: int) -> None:
        for process in list(self.running):
            process.send_signal(number)


def run_environment(slot: Slot) -> dict[str, str]:
    """Returns the environment variables of a run in a slot.

    Slurm's variables are left out: the run is no task of a Slurm job that contains the launcher.
    """
    inherited = {n: text for n, text in os.environ.items() if not n.startswith("SLURM_")}
    return inherited | dict(slot.environment)


def use_cpu_only() -> None:
    """Keeps JAX of a launcher off the accelerators, whose memory the runs need."""
    jax.config.update("jax_platforms", "cpu")
