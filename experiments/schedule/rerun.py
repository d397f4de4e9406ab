"""Reruns of recorded runs in a user's folder, and their comparison with the records."""

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
from experiments.cli.describe import show
from experiments.ledger import compare_records, read, write
from experiments.ledger.item import Paper
from experiments.ledger.ledger import Row, config_string, ledger
from experiments.ledger.record import Record
from experiments.schedule import executors, launch
from experiments.schedule.jobs import Job
from experiments.schedule.planning import PaperItem
from experiments.schedule.running import remaining_seconds
from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import write_atomically
from jaxformer.report.tables import csv_text

HEADS = ("cell", "metric", "rerun", "recorded", "paper", "difference", "verdict")
TABLE = "again.csv"  # the file of the comparison


class Rerun(NamedTuple):
    """A recorded cell of a table or figure, and the job that repeats its run."""

    row: Row
    cell: str
    job: Job


def main(
    args: Namespace,
    items: list[PaperItem],
    records: list[Record],
    papers: Mapping[str, Paper],
    estimate: Callable[[Any], float],
) -> int:
    """Repeats recorded runs, then prints and writes the comparison of all finished ones.

    Args:
        args: the flags of reproduce.py.
        items: the selected tables and figures.
        papers: the papers by key.
        estimate: a function that returns the seconds of a config.

    Returns:
        The exit code.
    """
    out = check_folder(args.out, must_exist=not (args.dry_run or args.status))
    names = {(paper.key, item.name) for paper, item in items}
    rows = [r for r in ledger(papers, records) if (r.paper.key, r.item.name) in names]
    reruns = plan_reruns(rows, args.scale, args.seeds, out, estimate)
    all_jobs = {rerun.job.workdir: rerun.job for rerun in reruns}  # cells may share a run
    if args.status:
        executors.print_status([rerun.job for rerun in reruns], out)
        return 0
    jobs = [job for job in all_jobs.values() if not job.is_finished()]
    jobs.sort(key=lambda job: (not job.is_started(), remaining_seconds(job)))
    code = executors.run_jobs(args, jobs, out, "runs to repeat") if jobs else 0
    if code is not None and not args.dry_run:
        compare(reruns, out)
    return code or 0


def check_folder(folder: Path, must_exist: bool) -> Path:
    """Returns the absolute path of the folder; creates it if it must exist."""
    out, results = folder.expanduser().resolve(), write.RESULTS.resolve()
    if out == results or results in out.parents:
        raise UserError("--out is results/, which holds the records; give another folder.")
    # The closest folder above `out` that exists, or `out` itself.
    parent = next(folder for folder in (out, *out.parents) if folder.exists())
    if not parent.is_dir():
        raise UserError(f"--out={out}: {parent} is a file; expected a folder.")
    if not os.access(parent, os.W_OK):
        raise UserError(f"--out={out}: cannot write to {parent}.")
    if must_exist:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--out={out}: cannot make it: {error.strerror}.") from None
    return out


def plan_reruns(
    rows: list[Row], scale: str, seeds: int, out: Path, estimate: Callable[[Any], float]
) -> list[Rerun]:
    """Returns a rerun of each recorded cell.

    Args:
        rows: the rows of the ledger.
        scale: the scale of the reruns; "" takes the scale of each record.
        seeds: the number of seeds. 0 takes the number of the record, or the number of the config if
            the scales of rerun and record differ.
        out: the folder of the runs.
        estimate: a function that returns the seconds of a config.
    """
    reruns = []
    for row in rows:
        for name, record in row.records.items():
            cell, recorded_scale = row.item.cells[name], record.arguments["scale"]
            text, overrides = config_string(cell, scale or recorded_scale), dict(cell.overrides)
            config: Any = flags.load_with_overrides(text, overrides)
            n_recorded = len(record.seeds) if scale in ("", recorded_scale) else 0
            n_seeds = seeds or n_recorded or flags.to_dict(config)["n_seeds"]
            if recipes.uses_seeds(config) and n_seeds != flags.to_dict(config)["n_seeds"]:
                overrides["n_seeds"] = str(n_seeds)
                config = flags.load_with_overrides(text, overrides)
            label = f"{row.paper.key} {row.item.name}: {name}"
            job = launch.make_job(label, text, overrides, out, seconds=estimate(config))
            reruns.append(Rerun(row, name, job))
    if not reruns:
        raise UserError(_no_record_message(rows))
    return reruns


def _no_record_message(rows: list[Row]) -> str:
    items = ", ".join(f"{row.paper.key} {row.item.name}" for row in rows[:4])
    more = f" and {len(rows) - 4} more" * (len(rows) > 4)
    stale = [record.stale for row in rows for record in row.stale.values()]
    reason = f" ({stale[0].rstrip('.')})" if stale else ""
    return f"there is no record to compare with of {items}{more}{reason}."


def compare(reruns: list[Rerun], out: Path) -> None:
    """Prints the table of the finished reruns, and writes it as again.csv into the folder."""
    jobs = {rerun.job.workdir: rerun.job for rerun in reruns}
    new_records = {workdir: _record_of_run(job) for workdir, job in jobs.items()}
    pairs_of_item: dict[str, list[compare_records.Pair]] = {}
    reasons: dict[str, list[str]] = {}  # {setting differences: the cells that are not bit-equal}
    for row, cell, job in reruns:
        new_record = new_records[job.workdir]
        if new_record is None:
            continue
        item = f"{row.paper.key} {row.item.name}"
        cell_pairs = compare_records.pairs(row, cell, new_record)
        pairs_of_item.setdefault(item, []).extend(cell_pairs)
        if any(pair.verdict != compare_records.SAME for pair in cell_pairs):
            differences = compare_records.setting_differences(new_record, row.records[cell])
            reason = "; ".join(differences) or "nothing that is recorded"
            reasons.setdefault(reason, []).append(f"{item}: {cell}")
    if not any(pairs_of_item.values()):
        return
    for item, pairs in pairs_of_item.items():
        table = Table(*HEADS, box=None, pad_edge=False, title=escape(item), title_justify="left")
        for pair in pairs:
            table.add_row(*map(escape, pair.columns()))
        show(table, width=140)
    for reason, cells in reasons.items():
        print(f"not bit-equal: {', '.join(cells)}; differences in the settings: {reason}")
    all_pairs = [pair for pairs in pairs_of_item.values() for pair in pairs]
    counts = compare_records.summary(all_pairs)
    verdicts = ", ".join(f"{n} {verdict}" for verdict, n in counts.items())
    print(f"{len(all_pairs)} numbers: {verdicts}")
    lines = [(item, *pair.columns()) for item, pairs in pairs_of_item.items() for pair in pairs]
    write_atomically(out / TABLE, csv_text([("item", *HEADS), *lines]).encode())
    print(f"written to {out / TABLE}")


def _record_of_run(job: Job) -> Record | None:
    """Returns the run of a job as a record; None if it has not finished."""
    if not job.is_finished():
        return None
    records, problems = read.load_runs(job.workdir)
    for problem in problems:
        print(f"warning: not used: {problem}", file=sys.stderr)
    return records[0] if records else None
