"""The output of reproduce.py before it starts: tables with their runs, and the queue."""

from collections.abc import Iterable

from experiments.cli import flags
from experiments.ledger.ledger import Row
from experiments.schedule.jobs import Job
from experiments.schedule.planning import DONE, OTHER_SCALE, CellName, PaperItem, PlannedRun
from experiments.schedule.running import remaining_seconds
from jaxformer.core.text_format import duration


def print_items(items: list[PaperItem], runs: Iterable[PlannedRun], rows: list[Row]) -> None:
    """Prints every table and figure with its verdict, and a line for each of its runs."""
    by_cell = {cell: run for run in runs for cell in run.cells}
    verdicts = {(row.paper.key, row.item.name): row.verdict for row in rows}
    for paper, item in items:
        verdict = f"needs {item.needs}" if item.needs else verdicts[paper.key, item.name]
        print(f"{paper.key} {item.name}: {verdict}")
        width = max(map(len, item.cells), default=0)
        for name in item.cells:
            run = by_cell[CellName(paper.key, item.name, name)]
            time = f", about {duration(run.estimate)}" if run.is_open else ""
            print(f"    {name:{width}}  {run.state}{time}")
    states = [run.state for run in runs]
    counts = {state: states.count(state) for state in dict.fromkeys(states)}
    print("runs, each counted once:", ", ".join(f"{n} {state}" for state, n in counts.items()))


def print_queue(jobs: Iterable[Job], budget: float) -> None:
    """Prints the time and command of each run that would start, in order."""
    total, shown, skipped = 0.0, 0, 0
    for job in jobs:
        seconds = remaining_seconds(job)
        if total + seconds > budget:
            skipped += 1
            continue
        total += seconds
        shown += 1
        print(f"{duration(seconds):>12}  {job.name}")
        print(f"{'':14}{flags.run_command(job.config, job.overrides)}")
    more = f"; {skipped} more do not fit the budget" if skipped else ""
    print(f"would run {shown} in about {duration(total)}{more}")


def nothing_to_run(runs: list[PlannedRun], scale: str) -> str:
    """Returns a sentence that explains why no run is open."""
    states = [run.state for run in runs]
    if not states:
        return "nothing to run: the selected tables and figures have no runs, see --list."
    if DONE not in states and OTHER_SCALE in states:
        scales = sorted({scale for run in runs for scale in run.cell.scales})
        return f"nothing to run: no run is meant at scale {scale}; try {' or '.join(scales)}."
    return f"nothing to run: {states.count(DONE)} of {len(states)} runs are recorded, see --list."
