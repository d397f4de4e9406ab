"""Reruns of recorded cells in a user's folder, and their comparison with the records."""

import math
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rich.markup import escape
from rich.table import Table

from experiments import recipes
from experiments.cli import flags
from experiments.cli.describe import csv_text, show
from experiments.ledger import compare_records, read, write
from experiments.ledger.item import Paper
from experiments.ledger.ledger import Row, config_string, ledger
from experiments.ledger.record import Record
from experiments.schedule import executors, launch, show_plan
from experiments.schedule.jobs import Job
from experiments.schedule.planning import PaperItem
from experiments.schedule.running import check_budget, parallel_seconds, remaining_seconds, run_all
from jaxformer.core.errors import UserError
from jaxformer.core.text_format import duration
from jaxformer.io.atomic_files import write_atomically

HEADS = ("cell", "metric", "rerun", "recorded", "paper", "difference", "verdict")
TABLE = "again.csv"


class Repeat(NamedTuple):
    """A cell of an item with its record, and the job that reruns it."""

    row: Row
    cell: str
    job: Job

    @property
    def record(self) -> Record:
        return self.row.records[self.cell]


def main(
    asked: Namespace,
    wanted: list[PaperItem],
    records: list[Record],
    papers: Mapping[str, Paper],
    estimate: Callable[[Any], float],
) -> int:
    """Runs the missing jobs, then prints and writes the comparison of all finished ones."""
    out = check_folder(asked.out, asked.dry_run or asked.status)
    names = {(paper.key, item.name) for paper, item in wanted}
    rows = [r for r in ledger(papers, records) if (r.paper.key, r.item.name) in names]
    repeats = planned(rows, asked.scale, asked.seeds, out, estimate)
    queue = {one.job.workdir: one.job for one in repeats if not one.job.is_finished()}
    jobs = sorted(queue.values(), key=lambda job: (not job.is_started(), remaining_seconds(job)))
    if asked.status:
        executors.print_status([one.job for one in repeats], out)
        return 0
    places, launcher = executors.executor_from_flags(asked, out)
    if launcher and not math.isinf(asked.budget):
        raise UserError("--budget is the time of this machine; jobs of Slurm have --slurm's time.")
    if jobs:
        check_budget(asked.budget, jobs)
    if asked.dry_run:
        show_plan.print_queue(jobs, asked.budget)
        return 0
    code = 0
    if jobs:
        total = duration(parallel_seconds(jobs, len(places)))
        print(f"runs to make again: {len(jobs)}, about {total}, in {out}", flush=True)
        code = run_all(jobs, places, asked.budget, make_executor=launcher)
    compare(repeats, out)
    return code


def check_folder(out: Path, only_look: bool) -> Path:
    """Returns the absolute folder, and creates it unless `only_look`."""
    out, results = out.expanduser().resolve(), write.RESULTS.resolve()
    if out == results or results in out.parents:
        raise UserError("--out is results/, which holds the records: give a folder of your own.")
    there = next(folder for folder in (out, *out.parents) if folder.exists())
    if not there.is_dir():
        raise UserError(f"--out={out}: {there} is a file; expected a folder.")
    if not os.access(there, os.W_OK):
        raise UserError(f"--out={out}: cannot write to {there}.")
    if not only_look:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--out={out}: cannot make it: {error.strerror}.") from None
    return out


def planned(
    rows: list[Row], scale: str, seeds: int, out: Path, estimate: Callable[[Any], float]
) -> list[Repeat]:
    """Plans a rerun of each recorded cell, at the record's scale unless another one is given."""
    found = []
    for row in rows:
        for name, record in row.records.items():
            cell, recorded = row.item.cells[name], record.arguments["scale"]
            text, overrides = config_string(cell, scale or recorded), dict(cell.overrides)
            config: Any = flags.load_with_overrides(text, overrides)
            n = seeds or (len(record.seeds) if scale in ("", recorded) else 0)
            if n and recipes.uses_seeds(config) and n != flags.to_dict(config)["n_seeds"]:
                overrides["n_seeds"] = str(n)
                config = flags.load_with_overrides(text, overrides)
            label = f"{row.paper.key} {row.item.name}: {name}"
            job = launch.make_job(label, text, overrides, out, seconds=estimate(config))
            found.append(Repeat(row, name, job))
    if not found:
        items = ", ".join(f"{row.paper.key} {row.item.name}" for row in rows[:4])
        more = f" and {len(rows) - 4} more" * (len(rows) > 4)
        stale = [r.stale for row in rows for r in row.stale.values()]
        reason = f" ({stale[0].rstrip('.')})" if stale else ""
        raise UserError(f"there is no record to compare with of {items}{more}{reason}.")
    return found


def compare(repeats: list[Repeat], out: Path) -> None:
    """Prints the table of the finished runs, and writes it as again.csv into the folder."""
    jobs = {repeat.job.workdir: repeat.job for repeat in repeats}
    runs = {workdir: _finished_run(job) for workdir, job in jobs.items()}
    pairs: dict[str, list[compare_records.Pair]] = {}  # by item
    reasons: dict[str, list[str]] = {}  # setting differences -> cells with other bits
    for repeat in repeats:
        rerun = runs[repeat.job.workdir]
        if rerun is None:
            continue
        item = f"{repeat.row.paper.key} {repeat.row.item.name}"
        compared = compare_records.pairs(repeat.row, repeat.cell, rerun)
        pairs.setdefault(item, []).extend(compared)
        if any(pair.verdict != compare_records.SAME for pair in compared):
            differences = compare_records.setting_differences(rerun, repeat.record)
            reason = "; ".join(differences) or "nothing that is recorded"
            reasons.setdefault(reason, []).append(f"{item}: {repeat.cell}")
    if not any(pairs.values()):
        return
    for item, compared in pairs.items():
        table = Table(*HEADS, box=None, pad_edge=False, title=escape(item), title_justify="left")
        for pair in compared:
            table.add_row(*map(escape, pair.columns()))
        show(table, width=140)
    for reason, cells in reasons.items():
        print(f"not all bits the same in {', '.join(cells)}; what differs: {reason}")
    every = [pair for compared in pairs.values() for pair in compared]
    counts = ", ".join(f"{n} {verdict}" for verdict, n in compare_records.summary(every).items())
    print(f"{len(every)} numbers: {counts}")
    lines = [(item, *pair.columns()) for item, compared in pairs.items() for pair in compared]
    write_atomically(out / TABLE, csv_text([("item", *HEADS), *lines]).encode())
    print(f"written to {out / TABLE}")


def _finished_run(job: Job) -> Record | None:
    """Returns the run of a job as a record; None if it has not finished."""
    if not job.is_finished():
        return None
    records, problems = read.load_runs(job.workdir)
    for problem in problems:
        print(f"warning: not used: {problem}", file=sys.stderr)
    return records[0] if records else None
