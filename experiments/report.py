"""Writes what the records say: RESULTS.md, blocks of README.md, one page of figures, tables.

    python experiments/report.py                    writes RESULTS.md and the blocks of README.md
    python experiments/report.py --check            exits 1 if they are not what the records say
    python experiments/report.py --page=FILE.html   one file: ledger, numbers, figures, commands
    python experiments/report.py --tables=DIR       a CSV and a LaTeX table for each item

With --page and --tables:
    --runs=DIR     takes the finished runs below DIR too, also of scale tiny; may be repeated
    --only-runs    takes nothing but them, and shows only the tables and figures that they touch

A record is written by `python experiments/run.py ... --record`. One that is damaged, of an unknown
schema, or of a config that has changed since is named and shown as such, never silently used.
"""

try:
    import experiments  # noqa: F401 (first of all: it says what Ctrl-C ends)
except ModuleNotFoundError:
    raise SystemExit("error: this python has no jax; `source .venv/bin/activate` first.") from None

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.ledger import tables
from experiments.ledger.ledger import Row, ledger
from experiments.ledger.read import ROOT, load, load_runs
from experiments.ledger.record import Record
from experiments.page import figures, html, markdown
from experiments.papers import PAPERS
from jaxformer.commandline import Parser, command
from jaxformer.errors import UserError
from jaxformer.records import write_atomically

TITLE = "Five papers on what each part of a transformer does: their numbers and ours"


@command
def main(argv: Sequence[str]) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--tables", type=Path)
    parser.add_argument("--runs", type=Path, action="append", default=[])
    parser.add_argument("--only-runs", action="store_true")
    asked = parser.parse_args(argv)
    beside = asked.page or asked.tables
    if asked.only_runs and not asked.runs:
        raise UserError("--only-runs needs the runs: --runs=DIR.")
    if asked.runs and not beside:
        raise UserError("RESULTS.md shows results/ alone; give --page=FILE or --tables=DIR too.")
    if asked.check and beside:
        raise UserError("--check compares RESULTS.md and README.md; give it alone.")
    records, problems = ([], []) if asked.only_runs else load(ROOT / "results")
    for folder in asked.runs:
        more = load_runs(folder)
        records, problems = records + more[0], problems + more[1]
    if not beside:
        return write_pages(records, problems, asked.check)
    whole = ledger(PAPERS, records, also=("tiny",) if asked.runs else ())
    rows = [row for row in whole if row.records or row.stale] if asked.only_runs else whole
    if asked.page:
        n = f"{len(rows)} of {len(whole)}"
        note = f"Shown are the {n} tables and figures that these runs are part of."
        _write(asked.page, html.page(rows, records, problems, TITLE, note * asked.only_runs))
        run_items = sum(bool(row.records) for row in rows)
        print(f"wrote {asked.page}: {run_items} of {len(rows)} tables and figures with our numbers")
    if asked.tables:
        write_tables(asked.tables, rows)
    for line in problems:
        print(f"not used: {line}", file=sys.stderr)
    return 0


def write_pages(records: list[Record], problems: list[str], check: bool) -> int:
    """Writes the Markdown pages; with `check` only says, with an exit code, if they are current."""
    texts = {ROOT / name: text for name, text in render(records, problems).items()}
    changed = [f.name for f, text in texts.items() if not f.exists() or f.read_text() != text]
    if check:
        print(f"out of date: {', '.join(changed)}" if changed else "the pages are up to date")
        return 1 if changed else 0
    for file, text in texts.items():
        _write(file, text)
    print(f"wrote {', '.join(file.name for file in texts)}")
    return 0


def render(records: list[Record], problems: list[str]) -> dict[str, str]:
    """The text of each Markdown page."""
    rows = ledger(PAPERS, records)
    return {
        "RESULTS.md": markdown.results(rows, records, problems),
        "README.md": markdown.readme((ROOT / "README.md").read_text(), rows),
    }


def write_tables(folder: Path, rows: list[Row]) -> None:
    """NAME.csv and NAME.tex for each item with cells, NAME-figure.csv for each figure."""
    written = 0
    for row in rows:
        if not row.item.cells:
            continue
        texts = {".csv": tables.as_csv(row), ".tex": tables.as_latex(row)}
        for i, figure in enumerate(figures.figures(row), 1):
            texts[f"-figure-{i}.csv"] = figure.csv
        for suffix, text in texts.items():
            if text:
                _write(folder / f"{tables.name_of(row)}{suffix}", text)
                written += 1
    print(f"wrote {written} files in {folder}")


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, text.encode())
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}.") from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
