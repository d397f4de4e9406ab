"""What reproduce.py says before it starts: the items with their runs, and the queue."""

from collections.abc import Iterable

from experiments.cli import flags
from experiments.ledger.ledger import Row
from experiments.schedule.jobs import Job
from experiments.schedule.planning import DONE, ELSEWHERE, Todo, Wanted
from experiments.schedule.running import rest
from jaxformer.core.text_format import duration


def items(wanted: list[Wanted], found: Iterable[Todo], rows: list[Row]) -> None:
    """Every table and figure, its verdict, and a line for each of its runs."""
    by_name = {name: todo for todo in found for name in todo.names}
    verdicts = {(row.paper.key, row.item.name): row.verdict for row in rows}
    for paper, item in wanted:
        verdict = f"needs {item.needs}" if item.needs else verdicts[paper.key, item.name]
        print(f"{paper.key} {item.name}: {verdict}")
        width = max(map(len, item.cells), default=0)
        for name in item.cells:
            todo = by_name[f"{paper.key} {item.name}: {name}"]
            time = f", about {duration(todo.estimate)}" if todo.is_open else ""
            print(f"    {name:{width}}  {todo.state}{time}")
    states = [todo.state for todo in found]
    counts = {state: states.count(state) for state in dict.fromkeys(states)}
    print("runs, each counted once:", ", ".join(f"{n} {state}" for state, n in counts.items()))


def queue(jobs: list[Job], budget: float) -> None:
    """What would run, in which order: the time and the command of each."""
    total, skipped = 0.0, 0
    for job in jobs:
        if total + rest(job) > budget:
            skipped += 1
            continue
        total += rest(job)
        print(f"{duration(rest(job)):>12}  {job.name}")
        print(f"{'':14}{flags.command(job.config, job.overrides)}")
    more = f"; {skipped} more do not fit the budget" if skipped else ""
    print(f"would run {len(jobs) - skipped} in about {duration(total)}{more}")


def nothing_open(found: list[Todo], scale: str) -> str:
    """Why there is nothing to do."""
    states = [todo.state for todo in found]
    if not states:
        return "nothing to run: what was asked for has no runs, see --list."
    if not states.count(DONE) and states.count(ELSEWHERE):
        scales = sorted({scale for todo in found for scale in todo.cell.scales})
        return f"nothing to run: no run is meant at scale {scale}; try {' or '.join(scales)}."
    return f"nothing to run: {states.count(DONE)} of {len(states)} runs are recorded, see --list."
