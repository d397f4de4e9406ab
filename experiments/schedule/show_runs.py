"""The runs that go on now: a table that moves in a terminal, a line now and then in a pipe."""

import time
from collections.abc import Sequence
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from experiments.schedule.devices import Place
from experiments.schedule.jobs import Job
from jaxformer.core.text_format import duration
from jaxformer.runtime.progress import Line

SHOWN = 20  # runs at a time


class Shown(Protocol):
    """A run that goes on."""

    @property
    def job(self) -> Job: ...
    @property
    def began(self) -> float: ...
    @property
    def place(self) -> Place: ...


class Board:
    """Shows the running jobs; `clear` makes room for something that is to stay."""

    def __init__(self) -> None:
        self.line = Line(live=0.5, printed=60.0)
        self.line.printed = time.monotonic()  # in a pipe the first one is not due at once
        self.console = Console(stderr=True)
        self.live: Live | None = None

    def is_due(self) -> bool:
        return self.line.is_due()

    def show(self, running: Sequence[Shown], free: int, aside: int, waiting: str = "") -> None:
        if not running and not aside and not waiting:
            return
        if self.line.live and len(running) > 1 and not self.line.notebook:
            self.line.printed = time.monotonic()
            if self.live is None:
                options = {"auto_refresh": False, "transient": True}
                self.live = Live(console=self.console, **options)  # type: ignore[arg-type]
                self.live.start()
            self.live.update(table(running, free, aside, waiting), refresh=True)
            return
        said = [one_line(shown.job, shown.began) for shown in running[:SHOWN]]
        others = [f"{len(running) - SHOWN} more"] * (len(running) > SHOWN)
        others += [waiting] * bool(waiting)
        others += [f"{aside} that another has"] * bool(aside)
        self.line.show(f"  {' | '.join([*said, *others])}")

    def clear(self) -> None:
        if self.live is not None:
            self.live.stop()
            self.live = None
        self.line.clear()


def table(running: Sequence[Shown], free: int, aside: int, waiting: str = "") -> Group:
    """A row for each run: where, for how long, how far."""
    rows = Table("place", "run", "for", "step", box=None, pad_edge=False)
    for shown in sorted(running, key=lambda shown: shown.began)[:SHOWN]:
        steps = shown.job.steps()
        far = f"{steps[0]} of {steps[1]}" if steps else "-"
        rows.add_row(escape(shown.place.name), escape(shown.job.name), spent(shown.began), far)
    counted = [f"{len(running)} run", f"{free} places free" * bool(free)]
    counted.append(waiting)
    counted.append(f"another has {aside}" * bool(aside))
    return Group(rows, ", ".join(filter(None, counted)))


def one_line(job: Job, began: float) -> str:
    """For how long it runs, and how far it says it is."""
    steps = job.steps()
    return f"{job.name}: {spent(began)}" + (f", step {steps[0]} of {steps[1]}" if steps else "")


def spent(began: float) -> str:
    return duration(time.monotonic() - began)
