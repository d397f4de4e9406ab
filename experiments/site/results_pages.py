"""The generated page RESULTS.md, and the tables of records that it shares with the papers' pages.

It has a line for each table and figure: the claim, the numbers of one rule and the verdict.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from experiments.cli import flags
from experiments.cli.describe import TRIVIAL, number, reference_kind
from experiments.ledger import headline, requirement, summary, tables
from experiments.ledger.item import Paper
from experiments.ledger.ledger import Row
from experiments.ledger.network_size import sizes
from experiments.ledger.record import Record
from experiments.ledger.rules import SHOWN as VERDICTS
from experiments.site import confirmation_lines
from experiments.site.markdown import plain, table, table_cell
from jaxformer.core.errors import one_line
from jaxformer.core.variants import VARIANTS

MAX_LINE_LENGTH = 400  # characters of a row of RESULTS.md
FOLDER = "docs/results"
# The metrics that a table of records shows first.
MAIN_METRICS = (
    "accuracy",
    "accuracy_existing",
    "accuracy_hard",
    "bits_per_parameter",
    "trained_share",
)
RESULT_HEADS = ("table or figure", "claim", "our numbers", "verdict", "runs and kind", "size")
MAX_METRICS = 8  # shown metrics of a record without any of the main metrics
MAX_COMMAND_LENGTH = 4000

HEAD = """# Results

`jaxformer report --write` writes this page and [docs/results](docs/results) from
`results/`.
`jaxformer report --page=page.html` shows the same with figures.

A row is a table, a figure or a statement of a paper. [Coverage](docs/coverage.md) lists the claims
without a row and the reasons. The link of a row leads to all rules, caveats and commands. A number
is a mean ± standard error over seeds, including the error of the test set. *Size* is the width ×
layers of our networks, then of the paper's. Numbers and verdict are those of the fresh runs where
there are some: rules were fixed first and seeds drawn afterwards. *Explored only* marks the other
rows. [How a verdict is made](docs/verdicts.md) explains verdicts, fresh runs and the kinds of "did
not hold".
"""


def anchor(row: Row) -> str:
    """Returns the anchor of a row's heading on its paper's page, as GitHub and Sphinx spell it."""
    return _anchor_of(row.item.name)


def _anchor_of(item: str) -> str:
    letters = "".join(c for c in item.lower() if c.isalnum() or c in " -_")
    return letters.replace(" ", "-")


def results(
    rows: Sequence[Row],
    records: Sequence[Record],
    problems: Sequence[str],
) -> str:
    """Returns the text of RESULTS.md."""
    lines = [HEAD]
    stale = [f"{r.where}: {r.standing}, {r.stale}" for r in records if r.stale]
    if unusable := [*map(plain, (*problems, *stale))]:
        lines += ["## Records that cannot be used", "", *(f"- {line}" for line in unusable), ""]
    lines += [
        "## Papers",
        "",
        *counts(rows, ""),
        "",
        summary.in_one_line(rows),
        summary.failures(rows),
        "",
        summary.decisions_after_correction(rows),
        "",
    ]
    if planned := confirmation_lines.summary(rows):
        lines += [planned, "", *confirmation_lines.section(rows, _link)]
    for key, paper in papers_of(rows).items():
        paper_rows = [row for row in rows if row.paper.key == key]
        lines += [f'## <a id="{key}"></a>{paper.title}', ""]
        lines += [f"{paper.source}. [Details]({FOLDER}/{key}.md).", ""]
        body = [*map(_result_cells, paper_rows)]
        lines += [*table(RESULT_HEADS, body), ""]
    lines += records_section(records_by_paper(rows, records)[1], "Records of no row")
    if not records:
        lines += ["There is no record: nothing was run and recorded yet."]
    return "\n".join(lines).rstrip() + "\n"


def papers_of(rows: Sequence[Row]) -> dict[str, Paper]:
    return {row.paper.key: row.paper for row in rows}


def records_by_paper(
    rows: Sequence[Row], records: Sequence[Record]
) -> tuple[dict[str, list[Record]], list[Record]]:
    """Returns ({paper: its records}, the records of no row).

    A record that rows of several papers use belongs to the first of these papers.
    """
    owner: dict[str, str] = {}
    for row in rows:
        for record in (*row.records.values(), *row.stale.values()):
            owner.setdefault(record.where, row.paper.key)
    by_paper: dict[str, list[Record]] = {key: [] for key in papers_of(rows)}
    unused = []
    for record in records:
        by_paper.get(owner.get(record.where, ""), unused).append(record)
    return by_paper, unused


def counts(rows: Sequence[Row], page: str) -> list[str]:
    """Returns the table of verdicts by paper; links lead to the sections of `page`."""
    has_fresh = any(map(headline.confirmation, rows))
    heads = ["paper", *VERDICTS, *(["by fresh runs"] if has_fresh else [])]
    body, claims = [], summary.distinct_claims(rows)
    for paper in papers_of(rows).values():
        paper_rows = [row for row in claims if row.paper.key == paper.key]
        verdicts = Counter(map(headline.verdict, paper_rows))
        cells = [str(verdicts[verdict] or "-") for verdict in VERDICTS]
        n_fresh = sum(headline.confirmation(row) is not None for row in paper_rows)
        cells += [str(n_fresh or "-")] if has_fresh else []
        body.append([f"[{paper.title}]({page}#{paper.key})", *cells])
    return table(heads, body, rule="---:")


def _link(paper: str, item: str) -> str:
    """Returns the link from RESULTS.md to the section of a row."""
    return f"[{item}]({FOLDER}/{paper}.md#{_anchor_of(item)})"


def _result_cells(row: Row) -> list[str]:
    link = _link(row.paper.key, row.item.name)
    numbers, note = requirement.decisive_text(row) or "-", headline.note(row) or "-"
    cells = [link, numbers, f"**{headline.verdict(row)}**", note, sizes(row) or "-"]
    # The claim gets the characters that the other cells and the separators leave.
    claim_length = MAX_LINE_LENGTH - len(" | ".join(cells)) - len("|  | |") - 2
    claim = _shortened(row.item.claim, claim_length)
    return [table_cell(text) for text in (link, claim, *cells[1:])]


def _shortened(text: str, max_length: int) -> str:
    """Returns the text, cut between words if it is longer than `max_length`."""
    text = plain(text).replace("|", "\\|")
    if len(text) <= max_length:
        return text
    return text[: max_length - 2].rpartition(" ")[0].rstrip(",;:") + " .."


def records_section(records: Sequence[Record], head: str) -> list[str]:
    """Returns a table for each config and scale of some records, with their commands."""
    return [f"## {head}", "", *records_lines(records, "### {}")] if records else []


def records_lines(records: Sequence[Record], head: str) -> list[str]:
    """Returns the same without a heading; `head` is the format of the title of a config."""
    lines = []
    groups: dict[str, list[Record]] = {}  # by title
    for record in sorted(records, key=_sort_key):
        groups.setdefault(_title(record), []).append(record)
    for title, group in groups.items():
        lines += [head.format(title), "", *_records_table(group), ""]
        lines += [f"    {one_line(record.command, MAX_COMMAND_LENGTH)}" for record in group] + [""]
    return lines


def _records_table(group: Sequence[Record]) -> list[str]:
    """Returns a row for each record of one config and scale."""
    names = [name for name in MAIN_METRICS if any(name in r.metrics for r in group)]
    names = names or sorted({name for r in group for name in r.metrics})[:MAX_METRICS]
    metrics = (table_cell(plain(name.replace("_", " "))) for name in names)
    body = [_record_cells(record, names) for record in group]
    lines = table(["variant", *metrics, "rate", "steps", "CPU s", "code"], body)
    by_kind: dict[str, list[str]] = {}  # references: guesses, theories, numbers of the paper
    for name, value in group[0].baselines.items():
        text = f"{plain(name).replace('_', ' ')} {number(value)}"
        by_kind.setdefault(reference_kind(name), []).append(text)
    for kind, texts in by_kind.items():
        heading = "Trivial predictors on the same set" if kind == TRIVIAL else kind.capitalize()
        lines += ["", f"{heading}: {', '.join(texts)}."]
    environment, n_seeds = group[0].environment, len(group[0].seeds)
    machine = plain(f"{environment.get('cores')} cores of {environment.get('device')}")
    return [*lines, "", f"Mean and standard error over {n_seeds} seeds; {machine}."]


def _record_cells(record: Record, names: Sequence[str]) -> list[str]:
    chosen = [m for m in record.members if m.get("chosen")]
    rate = chosen[0].get("learning_rate") if chosen else None
    commit = tables.commit(record) + (f" **{record.standing}**" if record.stale else "")
    cells = [
        _variant(record),
        *(tables.measured(record.metrics.get(name)) for name in names),
        "-" if rate is None else f"{rate:g}",
        str("-" if record.steps is None else record.steps),
        f"{record.seconds.get('cpu', 0):.0f}",
        commit,
    ]
    return [table_cell(plain(cell)) for cell in cells]


def _variant(record: Record) -> str:
    labels: Mapping[str, str] = record.arguments
    return str(labels.get("thaw", labels.get("variant", record.config_file)))


def _title(record: Record) -> str:
    changed = ", ".join(f"{n} = {flags.format_value(v)}" for n, v in record.overrides.items())
    parts = [record.config["name"], record.scale, record.arguments.get("preset", ""), changed]
    return plain(", ".join(filter(None, parts)))


def _sort_key(record: Record) -> tuple:
    names, variant = [*VARIANTS], record.arguments.get("variant")
    rank = names.index(variant) if variant in names else len(names)
    name = str(record.config["name"])
    return name, record.scale, str(record.overrides), rank, _variant(record), record.config_file
