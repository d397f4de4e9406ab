"""Runs jobs, each `run.py` in a process of its own: places, progress, signals, what came out.

    with Launcher(devices.plain(2)) as launcher:
        for outcome in launcher.run(jobs):
            ..

SIGINT and SIGTERM (and a closed terminal) are passed to the running jobs, which save and stop; no
further job is started. The same workdirs go on from there. A second signal stops the jobs at once.

Several launchers may work on the same folders: a job that another one has is put aside, and looked
at again when all others have ended. It is done then, or it goes on here.
"""

import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import jax

from experiments.schedule import child, devices
from experiments.schedule.devices import Place
from experiments.schedule.jobs import SIGNALS, Job, Outcome, job, settings
from experiments.schedule.show_runs import Board

__all__ = ["Job", "Launcher", "Outcome", "job", "leave_accelerators", "settings"]

PROGRAM: tuple[str, ...] = (sys.executable, str(Path(__file__).parents[1] / "run.py"))
POLL = 0.1  # seconds between two looks at the running jobs
LOOK = 1.0  # and at those that another launcher has
DONE = "another finished it"
IN_USE = "is in use by process"  # what a run says whose folder another one holds


class Running(NamedTuple):
    job: Job
    began: float
    place: Place


class Launcher:
    """Runs jobs, one at a time in each place. `signal` is the one that stopped it, or 0."""

    def __init__(self, places: Sequence[Place] | int = 1, deadline: float = math.inf):
        self.free = devices.plain(places) if isinstance(places, int) else list(places)
        self.free.reverse()  # the first place is taken first
        self.deadline, self.signal = deadline, 0
        self.running: dict[subprocess.Popen, Running] = {}
        self.aside: list[Job] = []  # what other launchers have
        self.looked = -math.inf  # when at those
        self.board = Board()

    def __enter__(self) -> "Launcher":
        self._before = {s: signal.signal(s, self._pass_on) for s in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        self.board.clear()
        for process in self.running:
            process.terminate()
        for process in self.running:
            process.wait()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        """Yields what became of each job as it ends; the next is taken when a place is free."""
        waiting, has_more = iter(jobs), True
        while True:
            while has_more and self.free and not self.signal:
                if (job := next(waiting, None)) is None:
                    has_more = False
                elif job.is_finished() and not (job.record or job.anew):
                    yield Outcome(job, 0, 0.0, DONE, elsewhere=True)  # while we did others
                elif not self._start(job):
                    self._put_aside(job)
            has_more = has_more and not self.signal
            yield from self._ended()
            if not has_more:
                yield from self._look_at_others()
            if not (has_more or self.running or self.aside):
                return
            if has_more and self.free:
                continue
            time.sleep(POLL)
            if time.monotonic() > self.deadline:
                self._send(signal.SIGTERM)
                self.deadline = math.inf  # once: a second signal would not let it save
                has_more = False
                yield from self._give_up()
            if self.board.is_due():
                self.board.show([*self.running.values()], len(self.free), len(self.aside))

    def _ended(self) -> Iterator[Outcome]:
        """Those of our own jobs that have ended since the last look."""
        for process in [p for p in self.running if p.poll() is not None]:
            job, began, place = self.running.pop(process)
            self.free.append(place)
            self.board.clear()
            code, spent = process.returncode, time.monotonic() - began
            said = job.last_words(code)
            if code == 2 and IN_USE in said and job.is_held():
                self._put_aside(job)
                continue
            yield Outcome(job, code, spent, said)

    def _look_at_others(self) -> Iterator[Outcome]:
        """Jobs that were put aside and are free again: done, or started here."""
        if self.signal:
            yield from self._give_up()
        if time.monotonic() - self.looked < LOOK:
            return
        self.looked = time.monotonic()
        for other in list(self.aside):
            if other.is_finished() and not other.is_held():
                self.aside.remove(other)
                yield Outcome(other, 0, 0.0, DONE, elsewhere=True)
            elif self.free and self._start(other):
                self.aside.remove(other)
                self.board.clear()
                print(f"  {other.name}: the other left it, it goes on here", flush=True)

    def _give_up(self) -> Iterator[Outcome]:
        """We end before the others do who have these."""
        for other in self.aside:
            yield Outcome(other, -signal.SIGTERM, 0.0, "another has it still", elsewhere=True)
        self.aside = []

    def _put_aside(self, job: Job) -> None:
        self.board.clear()
        print(f"  {job.name}: another has it: skipped", flush=True)
        self.aside.append(job)

    def _start(self, job: Job) -> bool:
        """In a free place; False if another launcher or run has the job."""
        if (log := job.claim()) is None:
            return False
        if job.anew:
            shutil.rmtree(job.workdir, ignore_errors=True)
        place = self.free.pop()
        with log:
            process = subprocess.Popen(
                child.together([*PROGRAM, *job.words()], place.cores),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment(place),
                start_new_session=True,  # Ctrl-C reaches it through us, and only once
            )
        self.running[process] = Running(job, time.monotonic(), place)
        return True

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        if not self.signal:
            print("\nstopping; once more to stop at once", file=sys.stderr)
        self.signal = number
        self._send(signal.SIGTERM)

    def _send(self, number: int) -> None:
        for process in list(self.running):
            process.send_signal(number)


def environment(place: Place) -> dict[str, str]:
    """Of a run in this place; it is no task of the Slurm job that we may be in."""
    mine = {n: text for n, text in os.environ.items() if not n.startswith("SLURM_")}
    return mine | dict(place.environment)


def leave_accelerators() -> None:
    """For a process that only starts others: it takes no memory of the device that they need."""
    jax.config.update("jax_platforms", "cpu")
