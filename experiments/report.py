"""Shows the results of the records as text, pages for a browser, tables and Markdown.

    jaxformer report --only="Table 2"          prints rows
    jaxformer report --page=page.html          writes pages for a browser
    jaxformer report --csv=results.csv         writes all numbers of the ledger into one file
    jaxformer report --write                   writes RESULTS.md, docs/results and README.md

  --only=NAME    shows only these rows: a paper, a table or figure, or how their names begin
  --page=FILE    writes FILE with findings and ledger, and FILE_PAPER.html for each paper
  --csv=FILE     writes one table with a line for each number of each row
  --tables=DIR   writes a CSV and a LaTeX table for each row
  --write        writes the pages of a clone: RESULTS.md, README.md, results/README.md,
                 docs/results, docs/papers, the table of docs/findings.md, a wheel's verdicts
  --check        exits 1 if these pages are out of date

With --page, --csv and --tables:

  --runs=DIR     also reads the finished runs below DIR, including scale tiny; may be repeated
  --only-runs    reads no records, and shows only the rows of these runs, in one page
  --opening=FILE.json  sentences that replace the findings at the top (demo.py writes them)

`jaxformer run ... --record` writes a record. A damaged record, one of another schema, or one whose
config has changed is listed and decides nothing.
"""

try:
    import experiments  # noqa: F401 (first: makes a Ctrl-C during imports print one line)
except ModuleNotFoundError:
    import cli.activate  # noqa: F401 (puts this clone on the path, or exits with a hint)

import sys
from collections.abc import Sequence
from pathlib import Path

import jaxformer
from experiments.cli.flags import IS_CLONE, WORKSPACE
from experiments.confirmation import published
from experiments.ledger import headline, requirement, shipped, summary, tables
from experiments.ledger.choose import matching_items, select_rows
from experiments.ledger.ledger import Row, ledger
from experiments.ledger.read import load, load_runs
from experiments.ledger.record import Record
from experiments.papers import PAPERS
from experiments.site import (
    confirmation_lines,
    figures,
    html,
    markdown,
    opening,
    paper_pages,
    paper_summaries,
    record_index,
    results_pages,
)
from experiments.site import ladders_shown as shown
from jaxformer.core.errors import UserError, one_line
from jaxformer.core.text_format import counted
from jaxformer.io.atomic_files import write_atomically
from jaxformer.runtime.command_line import Parser, command

TITLE = "Five papers on what each part of a transformer does: their numbers and ours"


@command
def main(argv: Sequence[str]) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--tables", type=Path)
    parser.add_argument("--runs", type=Path, action="append", default=[])
    parser.add_argument("--only-runs", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--opening", type=Path)
    args = parser.parse_args(argv)
    if not argv:
        print(parser.format_help().rstrip())
        return 0
    _check_arguments(args)
    records, problems = ([], []) if args.only_runs else load(WORKSPACE / "results")
    for folder in args.runs:
        run_records, run_problems = load_runs(folder)
        records, problems = records + run_records, problems + run_problems
    if args.write or args.check:
        return write_pages(records, problems, args.check)
    if not records and (args.csv or args.tables):
        folders = ", ".join(map(str, [WORKSPACE / "results", *args.runs][args.only_runs :]))
        raise UserError(
            f"there are no numbers to write: {folders} has no usable record. Make one with "
            "`jaxformer run ... --record`, give --runs=DIR, or use a clone of the repository."
        )
    if args.csv:
        _check_writable(args.csv)
    rows = ledger(PAPERS, records, also=("tiny",) if args.runs else ())
    if not args.only_runs:
        rows = published.with_confirmations(rows, WORKSPACE / "confirmation")
    all_rows = rows
    if args.only:
        rows = select_rows(rows, args.only)
        used = {r.where for row in rows for r in (*row.records.values(), *row.stale.values())}
        records = [record for record in records if record.where in used]
    if args.only_runs:
        rows = [row for row in rows if row.records or row.stale]
    if not _writes_files(args):
        print("\n\n".join(map(row_as_text if IS_CLONE else _row_of_wheel, rows)))
    if args.page:
        write_browser_pages(args, rows, len(all_rows), records, problems)
    if args.tables:
        write_tables(args.tables, rows)
    if args.csv:
        _write(args.csv, tables.ledger_as_csv(rows))
        print(f"wrote {args.csv}: {counted(len(rows), 'row')}")
    for line in problems:
        print(f"not used: {line}", file=sys.stderr)
    if not IS_CLONE and any(row.item.rules and not row.records for row in rows):
        print(
            f"verdicts without a record in {WORKSPACE / 'results'} are those of jaxformer "
            f"{jaxformer.__version__}, whose records are in its repository.",
            file=sys.stderr,
        )
    return 0


def _writes_files(args) -> bool:
    return bool(args.page or args.tables or args.csv)


def _check_arguments(args) -> None:
    """Raises UserError for arguments that do not fit together, before any record is read."""
    shows_rows = _writes_files(args) or args.only
    if args.opening and not args.page:
        raise UserError("--opening replaces the findings of a page; give --page=FILE too.")
    if args.only_runs and not args.runs:
        raise UserError("--only-runs needs the runs: --runs=DIR.")
    if args.check and (shows_rows or args.write):
        raise UserError("--check compares RESULTS.md and README.md; give it alone.")
    if args.write and shows_rows:
        raise UserError("--write writes RESULTS.md and README.md; give it alone.")
    if args.runs and not shows_rows:
        raise UserError("RESULTS.md shows results/ alone; give --page=FILE or --tables=DIR too.")
    if not (shows_rows or args.write or args.check):
        raise UserError("give --only=NAME, --page=FILE, --csv=FILE, --tables=DIR or --write.")
    if not (IS_CLONE or shows_rows):
        raise UserError(
            "RESULTS.md and README.md are pages of a clone; here give --page=FILE --runs=DIR "
            "--only-runs for a page of your runs."
        )
    if args.page:
        _check_writable(args.page)
    if args.only:
        items = [(paper.key, item.name) for paper in PAPERS.values() for item in paper.items]
        matching_items(items, args.only)


def write_browser_pages(
    args, rows: list[Row], n_all_rows: int, records: list[Record], problems: list[str]
) -> None:
    """Writes the HTML pages of rows. If rows are left out, a note states how many are shown."""
    note = ""
    if len(rows) < n_all_rows:
        which = "the rows of these runs, " if args.only_runs else ""
        note = f"Shown are {which}{len(rows)} of {n_all_rows} rows."
    openings = opening.of_file(args.opening, PAPERS, rows, records) if args.opening else None
    pages = html.pages(
        args.page.stem,
        rows,
        records,
        problems,
        TITLE,
        note=note,
        openings=openings,
        folder=args.page.parent,
        split=not args.only_runs,
    )
    for name, text in pages.items():
        _write(args.page.parent / name, text)
    for line in dict.fromkeys(line for row in rows for line in figures.missing_figures(row)):
        print(f"warning: {line}", file=sys.stderr)
    files = f" and {len(pages) - 1} pages" if len(pages) > 1 else ""
    n_with_records = sum(bool(row.records) for row in rows)
    print(f"wrote {args.page}{files}: {n_with_records} of {len(rows)} rows with our numbers")


def row_as_text(row: Row) -> str:
    """Returns a row as text for the terminal: claim, rules, verdict, records and missing runs."""
    lines = [*_judged_lines(row), *(f"  record {one_line(r.where)}" for r in row.records.values())]
    return "\n".join([*lines, *_commands(row)])


def _row_of_wheel(row: Row) -> str:
    """Returns the same where the papers' records are absent: the verdict comes with the wheel."""
    lines = shipped.of_row(row, shipped.read())
    if not row.records and lines:
        return "\n".join([*lines, *_commands(row)])
    text = row_as_text(row)
    if lines and tables.missing_commands(row):
        text += f"\n  with all runs, of jaxformer {jaxformer.__version__}: {lines[0]}"
    return text


def _commands(row: Row) -> list[str]:
    return [f"  to run: {line}" for line in tables.missing_commands(row).values()]


def _judged_lines(row: Row) -> list[str]:
    """Returns the lines of a row that a wheel contains: those without records and commands."""
    note = f" ({note})" if (note := headline.note(row)) else ""
    verdict = f"{headline.verdict(row)}{note}"
    lines = [f"{row.item.name} ({row.paper.key}): {verdict}", f"  claim: {row.item.claim}"]
    lines += map("  ".__add__, _rules_as_text(row))
    lines += [f"  caveat: {text}" for text in (*row.flags, row.item.note) if text]
    lines += [f"  needs {row.item.needs}"] if row.item.needs else []
    lines += [f"  here: {row.item.defines}"] if row.item.defines else []
    lines += [f"  {text}" for text in (*row.problems, *tables.stale_lines(row))]
    return lines


def _rules_as_text(row: Row) -> list[str]:
    """Returns a line for each rule and check; the fresh runs come before the first ones."""
    required, fresh = requirement.by_sentence(row), headline.fresh_rules(row)
    head = "first runs" if fresh else "rule"
    judged = [("rule", *rule) for rule in fresh]
    judged += [(head, f.text, f.verdict, f.numbers) for f in row.findings]
    judged += [("additional check", f.text, f.verdict, f.numbers) for f in row.checks]
    lines = []
    for head, sentence, verdict, numbers in judged:
        shown = requirement.with_requirement(numbers, required[sentence])
        lines.append(f"{head}: {sentence}: {verdict}" + (f", {shown}" if shown else ""))
    return lines


def write_pages(records: list[Record], problems: list[str], check: bool) -> int:
    """Writes the Markdown pages, or checks that they are up to date; returns the exit code."""
    pages = render(records, problems)
    changed = [name for name, text in pages.items() if not _has_text(WORKSPACE / name, text)]
    if check:
        print(f"out of date: {', '.join(changed)}" if changed else "the pages are up to date")
        return 1 if changed else 0
    for name, text in pages.items():
        _write(WORKSPACE / name, text)
    print(f"wrote {', '.join(pages)}")
    return 0


def _has_text(file: Path, text: str) -> bool:
    return file.exists() and file.read_text() == text


def render(records: list[Record], problems: list[str]) -> dict[str, str]:
    """Returns the text of each Markdown page by its path."""
    rows = published.with_confirmations(ledger(PAPERS, records), WORKSPACE / "confirmation")
    verdict_table = results_pages.counts(rows, "../RESULTS.md")
    verdict_table += [
        "",
        summary.in_one_line(rows),
        summary.failures(rows),
        "",
        confirmation_lines.summary(rows),
    ]
    pages = {
        "RESULTS.md": results_pages.results(rows, records, problems),
        "README.md": markdown.readme((WORKSPACE / "README.md").read_text(), rows),
        record_index.PLACE: record_index.page(rows),
    }
    findings = (WORKSPACE / "docs/findings.md").read_text()
    pages["experiments/verdicts.json"] = shipped.as_text(
        {
            key: {row.item.name: _judged_lines(row) for row in rows if row.paper.key == key}
            for key in results_pages.papers_of(rows)
        }
    )
    pages["docs/findings.md"] = markdown.findings(findings, rows, verdict_table)
    by_paper = results_pages.records_by_paper(rows, records)[0]
    trends = shown.trends(WORKSPACE / "ladders")
    for key, paper in results_pages.papers_of(rows).items():
        paper_rows = [row for row in rows if row.paper.key == key]
        page = paper_pages.paper_page(paper, paper_rows, by_paper[key], trends)
        pages[f"{results_pages.FOLDER}/{key}.md"] = page
        introduction = WORKSPACE / f"docs/papers/{key}.md"  # a new paper may have none yet
        if introduction.exists():
            text = paper_summaries.with_verdicts(introduction.read_text(), paper_rows)
            pages[f"docs/papers/{key}.md"] = text
    return pages


def write_tables(folder: Path, rows: list[Row]) -> None:
    """Writes NAME.csv and NAME.tex for each item with cells, NAME-figure.csv for each figure."""
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


def _check_writable(file: Path) -> None:
    """Raises UserError if the file cannot be written, before a minute is spent on the page."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}.") from None
    if file.is_dir():
        raise UserError(f"cannot write {file}: it is a folder.")


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, text.encode())
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}.") from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
