"""The loop of the executors: submits jobs while there is room, and yields each job's outcome.

An executor for local processes (`launch`) or a Slurm cluster (`slurm.executor`) implements five
methods: `has_room`, `submit`, `poll`, `stop` and `show`.
"""

import abc
import contextlib
import math
import signal
import time
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Self

from experiments.schedule.jobs import STOP_SIGNALS, Job, Outcome
from experiments.schedule.show_runs import Board

POLL_SECONDS = 0.1  # between two polls


class Executor(abc.ABC):
    """Runs jobs. It handles SIGINT, SIGTERM and SIGHUP while it is used as a context manager.

    Args:
        deadline: the time (`time.monotonic`) at which the executor stops.

    Attributes:
        signal: the signal that stopped the executor, or 0.
        unfinished: the submitted jobs without an outcome.
        board: the display of the running jobs.
    """

    def __init__(self, deadline: float = math.inf):
        self.deadline, self.signal = deadline, 0
        self.unfinished: list[Job] = []
        self.board = Board()

    @abc.abstractmethod
    def has_room(self) -> bool:
        """Returns whether another job can be submitted now."""

    @abc.abstractmethod
    def submit(self, job: Job) -> Iterable[Outcome]:
        """Starts a job or puts it into a queue; returns its outcome if it has finished already."""

    @abc.abstractmethod
    def poll(self, has_more: bool) -> Iterator[Outcome]:
        """Yields the outcomes of the jobs that have ended since the last poll.

        Args:
            has_more: whether more jobs may be submitted.
        """

    @abc.abstractmethod
    def stop(self) -> Iterator[Outcome]:
        """Stops after a signal or at the deadline; yields the outcomes of jobs that it gives up."""

    @abc.abstractmethod
    def show(self) -> None:
        """Shows the running jobs on the board."""

    def __enter__(self) -> Self:
        self._handlers = contextlib.ExitStack()
        for number in STOP_SIGNALS:
            previous = signal.signal(number, self.receive_signal)
            self._handlers.callback(signal.signal, number, previous)
        return self

    def __exit__(self, *_: object) -> None:
        self.board.clear()
        self._handlers.close()

    def receive_signal(self, number: int, _: FrameType | None) -> None:
        self.signal = number

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        """Yields the outcome of each job when it ends.

        The next job is taken from `jobs` only when there is room for it.
        """
        source = iter(jobs)
        has_more, is_stopped = True, False
        while True:
            if not is_stopped and (self.signal or time.monotonic() > self.deadline):
                is_stopped, has_more = True, False
                yield from self.end(self.stop())
            while has_more and not self.signal and self.has_room():
                if (job := next(source, None)) is None:
                    has_more = False
                else:
                    self.unfinished.append(job)
                    yield from self.end(self.submit(job))
            yield from self.end(self.poll(has_more))
            if not (has_more or self.unfinished):
                return
            if has_more and self.has_room():
                continue
            time.sleep(POLL_SECONDS)
            if self.board.is_due():
                self.show()

    def end(self, outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
        """Passes outcomes on and removes their jobs from the unfinished ones."""
        for outcome in outcomes:
            self.unfinished.remove(outcome.job)
            self.board.clear()
            yield outcome

    def announce(self, line: str) -> None:
        """Prints a line in place of the board."""
        self.board.clear()
        print(line, flush=True)
