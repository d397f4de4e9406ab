"""Markdown text: tables, escaped text of records, and the generated blocks of pages."""

import re
import tomllib
from collections.abc import Iterable, Sequence

from experiments.cli.flags import ROOT
from experiments.ledger import headline, summary, tables
from experiments.ledger.ledger import Row
from experiments.papers.sentences import longest
from jaxformer.core.errors import UserError, one_line
from jaxformer.core.variants import VARIANTS
from jaxformer.stats.members import record_number

LEDGER = ("<!-- ledger -->", "<!-- /ledger -->")
NUMBERS = ("<!-- numbers -->", "<!-- /numbers -->")
CLONE = ("<!-- clone -->", "<!-- /clone -->")
# "[Table 2, retrieval](docs/results/mixit.md#table-2-retrieval): **held** (9 new seeds)"
# Groups: 1 all text before the verdict, 2 item, 3 paper, 4 anchor, 5 text after the link,
# 6 verdict.
VERDICT = re.compile(
    r"(\[([^]]+)\]\((?:docs/)?results/(\w+)\.md#([\w-]+)\)([^:|\[]*): \*\*)([^*]+)\*\*"
    r"(?: \((?:explored|recomputed|one new|new samples|\d)[^()]*\))?"
)
MARKUP = {"<": "&lt;", ">": "&gt;", "`": "'", "!": "\\!"}
MAX_TEXT_LENGTH = 4000


def plain(text: str) -> str:
    """Returns text of a record without markup, links and line breaks."""
    escaped = "".join(MARKUP.get(sign, sign) for sign in one_line(text, MAX_TEXT_LENGTH))
    return escaped.replace("](", "]\\(")


def table_cell(text: str) -> str:
    """Returns text that fits into a cell of a table."""
    return re.sub(r"(?<!\\)\|", r"\\|", text.replace("\n", " "))


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], rule: str = "---") -> list[str]:
    """Returns the lines of a table; `rule` aligns all columns but the first."""
    head, *body = ("| " + " | ".join(cells) + " |" for cells in (heads, *rows))
    return [head, "|---|" + f"{rule}|" * (len(heads) - 1), *body]


def linked_rows(text: str) -> set[str]:
    """Returns "PAPER: ITEM" of the rows whose verdicts a page prints."""
    return {f"{match[3]}: {match[2]}" for match in VERDICT.finditer(text)}


def with_verdicts(text: str, rows: list[Row]) -> str:
    """Returns the text of a page with the verdict of each linked row, and its note, replaced."""
    row_of = {(row.paper.key, row.item.name): row for row in rows}

    def with_verdict(match: re.Match) -> str:
        row = row_of.get((match[3], match[2]))
        if row is None:
            return match[0]
        note = f" ({note})" if (note := headline.note(row)) else ""
        return f"{match[1]}{headline.verdict(row)}**{note}"

    return VERDICT.sub(with_verdict, text)


def readme(text: str, rows: list[Row]) -> str:
    """Returns README.md with its generated blocks and all verdicts replaced."""
    text = with_verdicts(text, rows)
    text = replace_block(text, LEDGER, [summary.in_one_line(rows)])
    return replace_block(text, CLONE, [clone_line((ROOT / "pyproject.toml").read_text())])


def findings(text: str, rows: list[Row], counts: Sequence[str]) -> str:
    """Returns docs/findings.md with its two tables and all verdicts replaced.

    Args:
      text: the text of docs/findings.md.
      rows: the rows of the ledger.
      counts: the table of verdicts by paper.
    """
    text = with_verdicts(text, rows)
    text = replace_block(text, LEDGER, [*counts, "", summary.late_rules(rows)])
    return replace_block(text, NUMBERS, _accuracy_by_variant(rows))


def clone_line(pyproject: str) -> str:
    """Returns the sentence of README.md about how to get the project.

    Args:
      pyproject: the text of pyproject.toml, whose field tool.jaxformer.clone_url may be empty.
    """
    url = tomllib.loads(pyproject)["tool"]["jaxformer"]["clone_url"]
    return f"`git clone {url}`, then run:" if url else "Clone this repository, then run:"


def _accuracy_by_variant(rows: list[Row]) -> list[str]:
    """Returns the table of accuracies by variant and task, with a line of trivial predictors.

    It shows the items that have a cell for each variant. If a variant also has a cell with four
    times the steps, the table shows this cell instead.
    """
    shown: dict[str, Row] = {}  # the first row of each config file, which stands for a task
    for row in rows:
        has_all = VARIANTS.keys() <= row.item.cells.keys() and row.item.metric == "accuracy"
        if has_all and len(row.records) > 1:
            configs = {cell.config.partition(":")[0] for cell in row.item.cells.values()}
            shown.setdefault(min(configs), row)
    if not shown:
        return ["No record yet: `jaxformer run --config=... --record` makes one."]
    names = [row.item.name.split(", ")[-1] for row in shown.values()]
    body = [[v, *(_accuracy(row, v) for row in shown.values())] for v in VARIANTS]
    body.append(["*trivial predictor*", *(f"*{_best_baseline(row)}*" for row in shown.values())])
    lines = table(["variant", *names], body)
    records = [record for row in shown.values() for record in row.records.values()]
    scales = plain(", ".join(sorted({record.scale for record in records})))
    seeds = sorted({len(record.seeds) for record in records})
    n_seeds = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    caption = (
        f"Accuracy in %, mean ± standard error over {n_seeds} seeds and the test set; scale: "
        f"{scales}. An accuracy of 100 has the error of a test set of this size."
    )
    return [*lines, "", caption]


def _best_baseline(row: Row) -> str:
    """Returns the best accuracy of a trivial predictor in %, or "-"."""
    baselines = [line.baseline for line in tables.lines(row) if line.baseline is not None]
    return f"{100 * max(baselines):.1f}" if baselines else "-"


def _accuracy(row: Row, variant: str) -> str:
    record = row.records.get(longest(row.records, variant))
    if record is None or record.metrics["accuracy"]["mean"] is None:
        return "-"
    return record_number(record.metrics["accuracy"], record.members, "accuracy").percent()


def replace_block(text: str, marks: tuple[str, str], lines: Sequence[str]) -> str:
    """Returns the text with new lines between the two marks of a block."""
    start, end = marks
    before, opened, rest = text.partition(start)
    _, closed, after = rest.partition(end)
    if not opened or not closed:
        raise UserError(f"a page has lost its block {start} .. {end}; put both lines back.")
    return "\n".join([before + start, *lines, end + after])
