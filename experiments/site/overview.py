"""The ledger of the page: counts by paper, and a filterable table with a line for each row."""

import re
from collections import Counter
from collections.abc import Mapping
from html import escape

from experiments.ledger import headline, requirement, rules, summary, tables
from experiments.ledger.item import Paper
from experiments.ledger.ledger import Row
from experiments.site.opening import paper_id
from experiments.site.section import finding_texts, flag_chip, verdict_chip, with_code
from jaxformer.report.html import table

KINDS = ("table", "figure", "equation", "theorem", "section")
# First word of an item's name -> its kind; other items are sections and appendices.
KIND_OF = {"table": "table", "figure": "figure", "figures": "figure"}
KIND_OF |= {"equation": "equation", "equations": "equation"}
KIND_OF |= {"theorem": "theorem", "lemma": "theorem", "assumption": "theorem"}


def kind(name: str) -> str:
    """Returns the kind of an item by the first word of its name."""
    first = re.match(r"\w*", name.lower())
    return KIND_OF.get(first[0] if first else "", "section")


def overview(rows: list[Row], papers: Mapping[str, Paper]) -> list[str]:
    """Returns counts by paper, filters and the table with links to the sections."""
    counts, bodies = [], []
    for paper in papers.values():
        paper_rows = [row for row in rows if row.paper.key == paper.key]
        link = f'<a href="#{paper_id(paper)}">{escape(paper.title)}</a>'
        verdicts = Counter(map(headline.verdict, summary.distinct_claims(paper_rows)))
        counts.append([link, *(str(verdicts[verdict] or "-") for verdict in rules.SHOWN)])
        bodies.append(_table_body(paper, paper_rows))
    heads = "".join(
        f'<th scope="col">{head}</th>'
        for head in ("table or figure", "the paper claims", "our runs", "verdict")
    )
    return [
        '<h2 id="ledger">The ledger</h2>',
        f"<p>{escape(_sentences(rows))}</p>",
        table(("paper", *rules.SHOWN), counts, rules.SHOWN, "cards"),
        _filters(rows, papers),
        f'<table class="ledger"><thead><tr>{heads}</tr></thead>{"".join(bodies)}</table>',
    ]


def _sentences(rows: list[Row]) -> str:
    parts = (
        summary.in_one_line(rows),
        summary.failures(rows),
        summary.decisions_after_correction(rows),
    )
    return " ".join(filter(None, parts)) + summary.not_counted(rows)


def _table_body(paper: Paper, rows: list[Row]) -> str:
    """Returns the lines of a paper in the table of the ledger."""
    head = f'<th colspan="4" scope="rowgroup">{escape(paper.title)}</th>'
    lines = "".join(map(_table_row, rows)) or (
        f'<tr class="row"><td colspan="4">No table or figure is judged by these runs; '
        f'<a href="#{paper_id(paper)}">what was run</a>.</td></tr>'
    )
    key = escape(paper.key)
    return f'<tbody data-paper="{key}"><tr class="paper">{head}</tr>{lines}</tbody>'


def _filters(rows: list[Row], papers: Mapping[str, Paper]) -> str:
    """Returns the form of the filters, hidden until page.js shows it."""
    verdicts = Counter(map(headline.verdict, rows))
    boxes = "".join(
        f'<label><input type="checkbox" name="verdict" value="{verdict}">'
        f"{verdict_chip(verdict)} {verdicts[verdict]}</label>"
        for verdict in rules.SHOWN
        if verdicts[verdict]
    )
    titles = {escape(paper.key): escape(paper.title) for paper in papers.values()}
    present = {kind(row.item.name) for row in rows}
    kinds = {name: name for name in KINDS if name in present}
    return (
        '<form id="filters" role="search" aria-label="Filter the ledger" hidden>'
        f"<fieldset><legend>Verdict</legend>{boxes}</fieldset>"
        f"{_choice('paper', 'all papers', titles)}{_choice('kind', 'all kinds', kinds)}"
        '<label>Search <input type="search" name="words" placeholder="attention, F2, GP limit">'
        '</label><button type="reset">Show all</button>'
        '<output name="count" aria-live="polite"></output></form>'
    )


def _choice(name: str, all_label: str, labels: Mapping[str, str]) -> str:
    """Returns a labelled selection; its first option selects all rows."""
    options = {"": all_label, **labels}
    html = "".join(f'<option value="{value}">{label}</option>' for value, label in options.items())
    return f'<label>{name.capitalize()} <select name="{name}">{html}</select></label>'


def _table_row(row: Row) -> str:
    item = row.item
    also = _small(escape(item.also)) if item.also else ""
    name = f'<a href="#{tables.name_of(row)}">{escape(item.name)}</a>{also}'
    ours = _our_numbers(row) + ("; a stale record" if row.stale else "")
    rule_counts = tables.rules_with_runs(row)
    flags = "".join(f"<br>{flag_chip(flag)}" for flag in row.flags)
    shown = headline.verdict(row)
    remarks = "".join(_small(escape(text)) for text in (headline.note(row), rule_counts) if text)
    verdict = verdict_chip(shown) + remarks + flags
    cells = "".join(f"<td>{cell}</td>" for cell in (name, escape(item.claim), ours, verdict))
    data = f'data-verdict="{shown}" data-kind="{kind(item.name)}"'
    return f'<tr class="row" {data}>{cells}</tr>'


def _our_numbers(row: Row) -> str:
    """Returns the decisive rule with its numbers, or what the row needs or defines."""
    if headline.confirmation(row):
        sentence, _ = headline.decisive_numbers(row)
        return escape(f"{sentence}: {requirement.decisive_text(row)}")
    missing = len(tables.missing_commands(row))
    to_run = f"{missing} run{'s' * (missing > 1)} to make" if missing else ""
    judged = [(f.verdict, text) for f, text in finding_texts(row) if f.numbers]
    decisive = [text for verdict, text in judged if verdict == row.verdict]
    if decisive:
        return decisive[0]
    if judged and to_run:
        return f"{judged[0][1]}; {to_run}"
    if row.item.needs:
        return f"needs {with_code(row.item.needs)}"
    return to_run or with_code(row.item.defines)


def _small(html: str) -> str:
    return f"<br><span class=small>{html}</span>"
