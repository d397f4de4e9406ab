"""The local executor: runs each job as a process of `run.py` on this machine.

    with LocalExecutor(devices.cpu_slots(2)) as executor:
        for outcome in executor.run(jobs):
            ..

On SIGINT, SIGTERM or SIGHUP the running jobs receive SIGTERM, save and stop, and no further job is
started. The jobs can be resumed from their folders. A second signal stops them at once.

Several launchers may work on the same folders. A job that another launcher runs is deferred until
no other job is left to start here. If the other launcher has left it unfinished, it resumes here.
"""

import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

import jax

from experiments.schedule import child, devices
from experiments.schedule.devices import Slot
from experiments.schedule.executor import Executor
from experiments.schedule.jobs import Job, Outcome, config_dict, make_job
from experiments.schedule.show_runs import Running

__all__ = ["Job", "LocalExecutor", "Outcome", "config_dict", "make_job", "use_cpu_only"]

PROGRAM: tuple[str, ...] = (sys.executable, str(Path(__file__).parents[1] / "run.py"))
DEFERRED_POLL_SECONDS = 1.0  # between two checks of the jobs of other launchers
DONE_ELSEWHERE = "another launcher finished it"
LOCKED_MESSAGE = "is in use by process"  # a part of the error of a run whose folder is locked


class LocalExecutor(Executor):
    """Runs one job at a time in each slot.

    Args:
        slots: the slots, or their number on a CPU.
        deadline: the time (`time.monotonic`) at which all running jobs are stopped.
    """

    def __init__(self, slots: Sequence[Slot] | int = 1, deadline: float = math.inf):
        super().__init__(deadline)
        self.free = devices.cpu_slots(slots) if isinstance(slots, int) else list(slots)
        self.free.reverse()  # `pop` takes the first slot first
        self.running: dict[subprocess.Popen, Running] = {}
        self.deferred: list[Job] = []  # jobs of other launchers
        self.last_deferred_poll = -math.inf

    def __exit__(self, *exception: object) -> None:
        self.board.clear()
        for process in self.running:
            process.terminate()
        for process in self.running:
            process.wait()
        super().__exit__(*exception)

    def has_room(self) -> bool:
        return bool(self.free)

    def submit(self, job: Job) -> Iterator[Outcome]:
        if job.is_finished() and not (job.record or job.restart):
            # Another launcher finished it after the list of jobs was made. A finished job with
            # `record` or `restart` still has something to do.
            yield Outcome(job, 0, 0.0, DONE_ELSEWHERE, by_other_launcher=True)
        elif not self.start(job):
            self._defer(job)

    def poll(self, has_more: bool) -> Iterator[Outcome]:
        for process in [process for process in self.running if process.poll() is not None]:
            job, began, slot = self.running.pop(process)
            self.free.append(slot)
            code, message = process.returncode, job.last_message(process.returncode)
            if code == 2 and LOCKED_MESSAGE in message and job.is_locked():
                self._defer(job)
            else:
                yield Outcome(job, code, time.monotonic() - began, message)
        if not has_more:
            yield from self._poll_deferred()

    def stop(self) -> Iterator[Outcome]:
        # After a signal the runs are already saving, and a second signal would interrupt this.
        if not self.signal:
            self._terminate_runs()
        for job in self.deferred:
            message = "another launcher still runs it"
            yield Outcome(job, -signal.SIGTERM, 0.0, message, by_other_launcher=True)
        self.deferred = []

    def show(self) -> None:
        self.board.show([*self.running.values()], len(self.free), len(self.deferred))

    def receive_signal(self, number: int, frame: FrameType | None) -> None:
        if not self.signal:
            print("\nstopping; press again to stop at once", file=sys.stderr)
        super().receive_signal(number, frame)
        self._terminate_runs()

    def start(self, job: Job) -> bool:
        """Starts a job in a free slot; returns False if another launcher or run has it."""
        if (log := job.claim_log()) is None:  # another process has locked the log
            return False
        if job.restart:
            shutil.rmtree(job.workdir, ignore_errors=True)
        slot = self.free.pop()
        with log:
            process = subprocess.Popen(
                # The run ends if this process dies.
                child.tied_command(job.command_line(PROGRAM), slot.cores),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=run_environment(slot),
                start_new_session=True,  # Ctrl-C reaches the run only through the launcher
            )
        self.running[process] = Running(job, time.monotonic(), slot)
        return True

    def _defer(self, job: Job) -> None:
        self.announce(f"  {job.name}: skipped, another launcher runs it")
        self.deferred.append(job)

    def _poll_deferred(self) -> Iterator[Outcome]:
        """Collects finished deferred jobs, and starts deferred jobs that no other launcher runs."""
        if time.monotonic() - self.last_deferred_poll < DEFERRED_POLL_SECONDS:
            return
        self.last_deferred_poll = time.monotonic()
        for job in list(self.deferred):
            if job.is_finished() and not job.is_locked():
                self.deferred.remove(job)
                yield Outcome(job, 0, 0.0, DONE_ELSEWHERE, by_other_launcher=True)
            elif self.free and self.start(job):
                self.deferred.remove(job)
                self.announce(f"  {job.name}: the other launcher left it; it resumes here")

    def _terminate_runs(self) -> None:
        for process in list(self.running):
            process.send_signal(signal.SIGTERM)


def run_environment(slot: Slot) -> dict[str, str]:
    """Returns the environment variables of a run in a slot.

    Slurm's variables are left out, so that a run does not take itself for a task of the launcher's
    Slurm job.
    """
    inherited = {n: text for n, text in os.environ.items() if not n.startswith("SLURM_")}
    return inherited | dict(slot.environment)


def use_cpu_only() -> None:
    """Makes JAX in a launcher use the CPU only, because the runs need the accelerators' memory."""
    jax.config.update("jax_platforms", "cpu")
