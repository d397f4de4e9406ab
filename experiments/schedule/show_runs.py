"""The display of running jobs: a live table in a terminal, an occasional line in a pipe."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from experiments.schedule.devices import Slot
from experiments.schedule.jobs import Job
from jaxformer.core.text_format import duration
from jaxformer.runtime.progress import StatusLine

MAX_SHOWN_RUNS = 20


class Running(NamedTuple):
    """A job, the time when it started, and its slot."""

    job: Job
    began: float
    slot: Slot


class Board:
    """Shows the running jobs. Call `clear` before printing other lines."""

    def __init__(self) -> None:
        self.line = StatusLine(screen_period=0.5, pipe_period=60.0)
        self.line.last_update = time.monotonic()  # the first line in a pipe comes after a period
        self.console = Console(stderr=True)
        self.live: Live | None = None

    def is_due(self) -> bool:
        return self.line.is_due()

    def show(self, running: Sequence[Running], free: int, deferred: int, waiting: str = "") -> None:
        """Shows the running jobs and the counts of the others.

        Args:
            running: the jobs that run.
            free: the number of free slots.
            deferred: the number of jobs that other launchers run.
            waiting: a phrase about jobs that wait in the queue of a cluster.
        """
        if not running and not deferred and not waiting:
            return
        if self.line.is_terminal and len(running) > 1 and not self.line.is_notebook:
            self.line.last_update = time.monotonic()
            if self.live is None:
                options = {"auto_refresh": False, "transient": True}
                self.live = Live(console=self.console, **options)  # type: ignore[arg-type]
                self.live.start()
            self.live.update(table(running, free, deferred, waiting), refresh=True)
            return
        parts = [progress_line(run.job, run.began) for run in running[:MAX_SHOWN_RUNS]]
        if len(running) > MAX_SHOWN_RUNS:
            parts.append(f"{len(running) - MAX_SHOWN_RUNS} more")
        if waiting:
            parts.append(waiting)
        if deferred:
            parts.append(f"{deferred} in other launchers")
        self.line.show(f"  {' | '.join(parts)}")

    def clear(self) -> None:
        if self.live is not None:
            self.live.stop()
            self.live = None
        self.line.clear()


def table(running: Sequence[Running], free: int, deferred: int, waiting: str = "") -> Group:
    """Returns a table with the slot, time and step of each run, and a line of counts."""
    rows = Table("slot", "run", "time", "step", box=None, pad_edge=False)
    for run in sorted(running, key=lambda run: run.began)[:MAX_SHOWN_RUNS]:
        rows.add_row(
            escape(run.slot.name), escape(run.job.name), elapsed(run.began), step_text(run.job)
        )
    counts = [f"{len(running)} running", f"{free} slots free" * bool(free), waiting]
    counts.append(f"{deferred} in other launchers" * bool(deferred))
    return Group(rows, ", ".join(filter(None, counts)))


def step_text(job: Job) -> str:
    """Returns "3 of 9" for a run at step 3 of 9, or "-" if its log has no step."""
    progress = job.progress()
    return f"{progress[0]} of {progress[1]}" if progress else "-"


def progress_line(job: Job, began: float) -> str:
    """Returns "NAME: 12 s, step 3 of 9"."""
    step = f", step {step_text(job)}" if job.progress() else ""
    return f"{job.name}: {elapsed(began)}{step}"


def elapsed(began: float) -> str:
    return duration(time.monotonic() - began)
