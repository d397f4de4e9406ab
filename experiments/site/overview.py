"""The ledger of the page: counts by paper, and a filterable table with a line for each row."""

import re
from collections import Counter
from collections.abc import Mapping
from html import escape

from experiments.ledger import rules, summary, tables
from experiments.ledger.item import Paper
from experiments.ledger.ledger import Row
from experiments.site.opening import paper_id
from experiments.site.section import finding_texts, flag, marked, table, verdict

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
    counted, body = [], []
    for paper in papers.values():
        own = [row for row in rows if row.paper.key == paper.key]
        counts = Counter(row.verdict for row in summary.of_the_papers(own))
        link = f'<a href="#{paper_id(paper)}">{escape(paper.title)}</a>'
        counted.append([link, *(str(counts[word] or "-") for word in rules.SHOWN)])
        head = f'<th colspan="4" scope="rowgroup">{escape(paper.title)}</th>'
        lines = "".join(map(_ledger_row, own)) or (
            f'<tr class="row"><td colspan="4">No table or figure is judged by these runs; '
            f'<a href="#{paper_id(paper)}">what was run</a>.</td></tr>'
        )
        key = escape(paper.key)
        body.append(f'<tbody data-paper="{key}"><tr class="paper">{head}</tr>{lines}</tbody>')
    heads = "".join(
        f'<th scope="col">{word}</th>'
        for word in ("table or figure", "the paper claims", "our runs", "verdict")
    )
    return [
        '<h2 id="ledger">The ledger</h2>',
        f"<p>{escape(summary.luck(rows) + summary.apart(rows))}</p>",
        table(("paper", *rules.SHOWN), counted, rules.SHOWN),
        _filters(rows, papers),
        f'<table class="ledger"><thead><tr>{heads}</tr></thead>{"".join(body)}</table>',
    ]


def _filters(rows: list[Row], papers: Mapping[str, Paper]) -> str:
    """Returns the form of the filters, hidden until page.js shows it."""
    verdicts = Counter(row.verdict for row in rows)
    boxes = "".join(
        f'<label><input type="checkbox" name="verdict" value="{word}">'
        f"{verdict(word)} {verdicts[word]}</label>"
        for word in rules.SHOWN
        if verdicts[word]
    )
    titles = {escape(paper.key): escape(paper.title) for paper in papers.values()}
    kinds = {word: word for word in KINDS if any(kind(row.item.name) == word for row in rows)}
    return (
        '<form id="filters" role="search" aria-label="Filter the ledger" hidden>'
        f"<fieldset><legend>Verdict</legend>{boxes}</fieldset>"
        f"{_choice('paper', 'all papers', titles)}{_choice('kind', 'all kinds', kinds)}"
        '<label>Search <input type="search" name="words" placeholder="attention, F2, GP limit">'
        '</label><button type="reset">Show all</button>'
        '<output name="count" aria-live="polite"></output></form>'
    )


def _choice(name: str, every: str, options: Mapping[str, str]) -> str:
    words = "".join(f'<option value="{key}">{text}</option>' for key, text in options.items())
    label = name.capitalize()
    return (
        f'<label>{label} <select name="{name}"><option value="">{every}</option>{words}</select>'
        "</label>"
    )


def _ledger_row(row: Row) -> str:
    """Returns the line of a row with the finding that decided the verdict."""
    known = [(f.verdict, text) for f, text in finding_texts(row) if f.numbers]
    decided = [text for verdict, text in known if verdict == row.verdict]
    missing = len(tables.missing(row))
    open_ones = f"{missing} run{'s' * (missing > 1)} to make" if missing else ""
    needs = f"needs {marked(row.item.needs)}" if row.item.needs else ""
    if decided:
        ours = decided[0]
    elif known and open_ones:
        ours = f"{known[0][1]}; {open_ones}"
    else:
        ours = needs or open_ones or marked(row.item.defines)
    ours += "; a stale record" if row.stale else ""
    part = tables.decided(row)
    part = f"<br><span class=small>{part}</span>" if part else ""
    part += "".join(f"<br>{flag(word)}" for word in row.flags)
    also = f"<br><span class=small>{escape(row.item.also)}</span>" if row.item.also else ""
    link = f'<a href="#{tables.name_of(row)}">{escape(row.item.name)}</a>{also}'
    of = f'data-verdict="{row.verdict}" data-kind="{kind(row.item.name)}"'
    return (
        f'<tr class="row" {of}><td>{link}</td><td>{escape(row.item.claim)}</td><td>{ours}</td>'
        f"<td>{verdict(row.verdict)}{part}</td></tr>"
    )
