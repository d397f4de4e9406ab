"""The Markdown pages: RESULTS.md, and what README.md shows of the rows of the ledger."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from configs.common import VARIANTS
from experiments.cli import flags
from experiments.ledger import summary, tables
from experiments.ledger.ledger import Row
from experiments.ledger.record import Record
from experiments.ledger.rules import SHOWN as VERDICTS
from experiments.ledger.rules import Rule
from experiments.ledger.statistics import record_number
from experiments.papers.row_numbers import longest
from jaxformer.core.errors import UserError, one_line
from jaxformer.core.text_format import number

LEDGER = ("<!-- ledger -->", "<!-- /ledger -->")
NUMBERS = ("<!-- numbers -->", "<!-- /numbers -->")
# "[Table 2, retrieval](RESULTS.md#mixit-table-2-retrieval), at small scale: **held**"
VERDICT = re.compile(r"(\[([^]]+)\]\((?:\.\./)?RESULTS\.md#([\w-]+)\)([^:|\[]*): \*\*)([^*]+)\*\*")
# What a table of records shows first; everything else stays in the record.
MARKUP = {"<": "&lt;", ">": "&gt;", "`": "'", "!": "\\!"}
SHOWN = ("accuracy", "accuracy_existing", "accuracy_hard", "bits_per_parameter", "trained_share")

HEAD = """# Results

Made from `results/` by `python experiments/report.py`, never by hand. The same with
figures, as one file: `python experiments/report.py --page=page.html`.
"""
LEGEND = """A row for every table and figure. A number is a mean ± standard error over seeds; that
of a finding has the test set's error in it. Rules decide whether the paper's claim held. A rule
shows two numbers, and asks that one is above the other, or that both are close; by how much stands
behind them. *Held*: the whole 95 % interval of their difference is where the claim wants it. *Did
not hold*: all of it is on the other side. *Cannot tell yet*: it contains the border, or an error or
a run is missing. Runs that share seeds are compared seed by seed. `code`: the commit that the runs
were made with. *Rule written after the numbers*: numbers of these runs had been seen before.
"""


def results(rows: list[Row], records: list[Record], problems: list[str]) -> str:
    """The text of RESULTS.md."""
    lines = [HEAD]
    stale = [f"{r.where}: {r.standing}, {r.stale}" for r in records if r.stale]
    if problems := [*map(plain, (*problems, *stale))]:
        lines += ["## Records that cannot be used", "", *(f"- {p}" for p in problems), ""]
    lines += ["## Ledger", "", *_counts(rows, heading=True), "", LEGEND, summary.luck(rows), ""]
    listed: dict[str, str] = {}
    for key, paper in {row.paper.key: row.paper for row in rows}.items():
        own = [row for row in rows if row.paper.key == key]
        lines += [
            f'### <a id="{key}"></a>{paper.title}',
            "",
            f"{paper.source}.",
            "",
            summary.lead(rows, key),
            "",
        ]
        heads = ["table or figure", "the paper claims", "our runs", "verdict", "scale", "caveat"]
        lines += [*_table([*heads, "code"], map(_ledger_row, own)), ""]
        lines += _open(key, own, listed)
    lines += ["## Records", ""]
    groups: dict[str, list[Record]] = {}
    for record in sorted(records, key=_order):
        groups.setdefault(_title(record), []).append(record)
    for title, group in groups.items():
        lines += [f"### {title}", "", *_group(group), ""]
        lines += [f"    {one_line(record.command, 4000)}" for record in group] + [""]
    if not records:
        lines += ["None: nothing was run and recorded yet."]
    return "\n".join(lines).rstrip() + "\n"


def plain(text: str) -> str:
    """Words of a record as Markdown prints them: no markup, no links, one line."""
    words = "".join(MARKUP.get(sign, sign) for sign in one_line(text, 4000))
    return words.replace("](", "]\\(")


def readme(text: str, rows: list[Row]) -> str:
    """README.md with its two blocks replaced, and the verdict that follows the name of an item."""
    words = {tables.name_of(row): row.verdict for row in rows}
    text = VERDICT.sub(lambda m: m[1] + words.get(m[3], m[5]) + "**", text)
    text = _replace(text, LEDGER, [*_counts(rows, heading=False), "", summary.late(rows)])
    return _replace(text, NUMBERS, _variants(rows))


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], rule: str = "---") -> list[str]:
    """A Markdown table; `rule` stands below all heads but the first."""
    head, *body = ("| " + " | ".join(cells) + " |" for cells in (heads, *rows))
    return [head, "|---|" + f"{rule}|" * (len(heads) - 1), *body]


def _counts(rows: list[Row], heading: bool) -> list[str]:
    """Papers x verdicts: how many rows."""
    body, claimed = [], summary.of_the_papers(rows)
    for paper in {row.paper.key: row.paper for row in rows}.values():
        counts = Counter(row.verdict for row in claimed if row.paper.key == paper.key)
        link = f"{'' if heading else 'RESULTS.md'}#{paper.key}"
        cells = [str(counts[word] or "-") for word in VERDICTS]
        body.append([f"[{paper.title}]({link})", *cells])
    return _table(["paper", *VERDICTS], body, rule="---:")


def _ledger_row(row: Row) -> list[str]:
    ours = [
        f"{f.text}? {holds}: {f.numbers}{_asked(row.item.rules[f.text])} ({f.verdict})"
        for f, holds, _ in tables.said(row)
        if holds
    ]
    open_ones = len(row.findings) - len(ours)
    ours += [f"{open_ones} of {len(row.findings)} rules wait for runs"] * bool(ours and open_ones)
    ours += [f"*{plain(line)}*" for line in (*tables.stale_lines(row), *row.problems)]
    beside = tables.said(row, checks=True)
    ours += [
        f"Beside the claim: {f.text}? {holds}: {f.numbers}{_asked(row.item.checks[f.text])}"
        for f, holds, _ in beside
        if holds
    ]
    caveat = [f"*{flag}*." for flag in row.flags] + [row.item.note]
    caveat += [f"Needs {row.item.needs}."] if row.item.needs else []
    commits = sorted({tables.commit(record) for record in row.records.values()})
    cells = [
        f'<a id="{tables.name_of(row)}"></a>{row.item.name}'
        + (f"<br>{row.item.also}" if row.item.also else ""),
        row.item.claim,
        "<br>".join(ours) or row.item.defines or "-",
        f"**{row.verdict}**",
        ", ".join(sorted({record.scale for record in row.records.values()})) or "-",
        " ".join(filter(None, caveat)),
        "<br>".join(map(plain, commits)) or "-",
    ]
    return [cell.replace("|", "\\|").replace("\n", " ") for cell in cells]


def _asked(rule: Rule) -> str:
    """How far apart the two numbers must be, or may be; "" where only the order counts."""
    if rule.within:
        return f", within {rule.by:g}"
    if rule.by < 0:
        return f", at most {-rule.by:g} on the wrong side"
    return f", by more than {rule.by:g}" if rule.by else ""


def _open(key: str, rows: list[Row], listed: dict[str, str]) -> list[str]:
    """The commands of what was not run, each once; `listed` maps a command to its first item."""
    lines = []
    for row in rows:
        commands = tables.missing(row)
        new = [line for line in commands.values() if line not in listed]
        listed |= dict.fromkeys(new, f"{row.item.name} of {row.paper.source}")
        if new:
            lines += [f"{row.item.name}:", "", *(f"    {line}" for line in new), ""]
        elif commands:
            lines += [f"{row.item.name}: the runs of {listed[next(iter(commands.values()))]}.", ""]
    every = f"`python experiments/reproduce.py --paper {key}` makes them all. One at a time:"
    lines = [f"Runs not yet made; {every}", "", *lines] if lines else []
    more = {row.item.name: tables.more_seeds(row) for row in rows}
    for name, line in more.items():
        if line:
            lines += [f"{name} cannot be told yet; with more seeds:", "", f"    {line}", ""]
    return lines


def _variants(rows: list[Row]) -> list[str]:
    """Accuracy by variant and task of the items with a cell for each; a row of chance level.

    Of a variant that has four times the steps in a cell of its own, it is that cell.
    """
    chosen: dict[str, Row] = {}
    for row in rows:
        known = VARIANTS.keys() <= row.item.cells.keys() and row.item.metric == "accuracy"
        if known and len(row.records) > 1:
            configs = {cell.config.partition(":")[0] for cell in row.item.cells.values()}
            chosen.setdefault(min(configs), row)
    if not chosen:
        return ["No record yet: `python experiments/run.py --config=... --record` makes one."]
    names = [row.item.name.split(", ")[-1] for row in chosen.values()]
    body = [[v, *(_accuracy(row, v) for row in chosen.values())] for v in VARIANTS]
    levels = [[line.baseline for line in tables.lines(row)] for row in chosen.values()]
    best = [max((b for b in row if b is not None), default=None) for row in levels]
    body.append(
        ["*trivial predictor*", *("*-*" if b is None else f"*{100 * b:.1f}*" for b in best)]
    )
    lines = _table(["variant", *names], body)
    records = [record for row in chosen.values() for record in row.records.values()]
    scales = plain(", ".join(sorted({record.scale for record in records})))
    seeds = sorted({len(record.seeds) for record in records})
    told = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    told = f"Accuracy in %, mean ± standard error over {told} seeds and the test set"
    full = "An error beside 100 is what a test set of this size leaves open."
    return [*lines, "", f"{told}; scale: {scales}. {full}"]


def _accuracy(row: Row, variant: str) -> str:
    record = row.records.get(longest(row, variant))
    if record is None or record.metrics["accuracy"]["mean"] is None:
        return "-"
    return record_number(record.metrics["accuracy"], record.members, "accuracy").percent()


def _replace(text: str, marks: tuple[str, str], lines: list[str]) -> str:
    start, end = marks
    before, found, rest = text.partition(start)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise UserError(f"README.md has lost its block {start} .. {end}; put both lines back.")
    return "\n".join([before + start, *lines, end + after])


def _group(group: list[Record]) -> list[str]:
    """The records of one config and scale, a row each."""
    names = [name for name in SHOWN if any(name in r.metrics for r in group)]
    names = names or sorted({name for r in group for name in r.metrics})[:8]
    shown = (_cell(name.replace("_", " ")) for name in names)
    heads = ["variant", *shown, "rate", "steps", "CPU s", "code"]
    body = []
    for record in group:
        chosen = [m for m in record.members if m.get("chosen")]
        rate = chosen[0].get("learning_rate") if chosen else None
        rate = "-" if rate is None else f"{rate:g}"
        steps = str("-" if record.steps is None else record.steps)
        code = _cell(tables.commit(record)) + (f" **{record.standing}**" if record.stale else "")
        values = [tables.measured(record.metrics.get(n)) for n in names]
        seconds = f"{record.seconds.get('cpu', 0):.0f}"
        body.append([_cell(_variant(record)), *values, rate, steps, seconds, code])
    lines = _table(heads, body)
    if group[0].baselines:
        levels = group[0].baselines.items()
        text = ", ".join(f"{plain(n).replace('_', ' ')} {number(v)}" for n, v in levels)
        lines += ["", f"Trivial predictors on the same set: {text}."]
    environment, seeds = group[0].environment, len(group[0].seeds)
    machine = plain(f"{environment.get('cores')} cores of {environment.get('device')}")
    return [*lines, "", f"Mean and standard error over {seeds} seeds; {machine}."]


def _variant(record: Record) -> str:
    labels = record.arguments
    return str(labels.get("thaw", labels.get("variant", record.config_file)))


def _title(record: Record) -> str:
    changed = ", ".join(f"{n} = {flags.spelled(v)}" for n, v in record.overrides.items())
    words = [record.config["name"], record.scale, record.arguments.get("preset", ""), changed]
    return plain(", ".join(filter(None, words)))


def _cell(text: str) -> str:
    return plain(text).replace("|", "\\|")


def _order(record: Record) -> tuple:
    names, variant = [*VARIANTS], record.arguments.get("variant")
    place = names.index(variant) if variant in names else len(names)
    name = str(record.config["name"])
    return name, record.scale, str(record.overrides), place, _variant(record), record.config_file
