"""Cards at the top of the page: a sentence, a verdict and a chart for each paper."""

from collections import Counter
from collections.abc import Collection
from html import escape
from typing import NamedTuple

from experiments.cli.describe import differing_settings
from experiments.ledger import rules, tables
from experiments.ledger.item import FLAGS, Paper
from experiments.ledger.ledger import Row
from experiments.ledger.record import Record
from experiments.papers import findings
from experiments.papers.finding_charts import Chart
from experiments.site import svg
from experiments.site.attachments import with_papers
from experiments.site.section import flag, verdict

CARD = 330  # the width of a card's chart, in the units of svg.py
MEANING = {
    rules.HELD: "every rule of the claim holds in our runs, beyond their errors.",
    rules.NOT_HELD: "at least one rule of the claim fails in our runs, beyond their errors.",
    rules.OPEN: "errors are too large or unknown, or runs are missing.",
    rules.NOT_RUN: "there is no usable record; its section has the command.",
    rules.MISSING: "it needs data, weights or hardware that are not available.",
    rules.DEFINITION: "a drawing or a table of settings, which claims no number.",
}
SCALES = {
    "tiny": "seconds; shows that the code runs",
    "small": "minutes on two cores; made to show the effect",
    "paper": "the published sizes; the section lists differences",
}


class Opening(NamedTuple):
    """The content of a card."""

    paper: Paper
    sentence: str  # "" without runs
    made: str  # how the numbers were made: scale, seeds, and how many rules held
    verdict: str  # "" if no rule judges the runs
    item: str  # the item with the evidence, such as "Table 2, retrieval"
    anchor: str  # id of the section with the evidence
    runs: tuple[str, ...] = ()  # shown under the paper if no row has them
    chart: str = ""  # HTML


def paper_id(paper: Paper) -> str:
    """Returns the anchor of a paper."""
    return f"paper-{paper.key.replace('_', '-')}"


def of_rows(rows: list[Row]) -> list[Opening]:
    """Returns the content of a card for each finding whose item is among the rows."""
    row_of = {(row.paper.key, row.item.name): row for row in rows}
    cards = []
    for finding in findings.FINDINGS:
        if row := row_of.get((finding.paper, finding.item)):
            chart = findings.chart(finding, row)
            card = Opening(
                paper=row.paper,
                sentence=findings.sentence(finding, row),
                made=_behind(row),
                verdict=row.verdict,
                item=row.item.name,
                anchor=tables.name_of(row),
                chart=_drawn(chart) if chart else "",
            )
            cards.append(card)
    return cards


def _drawn(chart: Chart) -> str:
    """Returns the dot chart of a finding with its legend."""
    errors = {  # nan, an unknown error, has no bar
        name: dot.ours.error if dot.ours.error > 0 else 0.0 for name, dot in chart.dots.items()
    }
    dots = [
        svg.Dot(name, dot.ours.mean, errors[name], dot.theory, dot.level)
        for name, dot in chart.dots.items()
    ]
    numbers = ", ".join(f"{name} {dot.ours}" for name, dot in chart.dots.items())
    axis = svg.Axis(chart.axis, limits=chart.limits)
    ours = "ours; bars are standard errors" if any(errors.values()) else "ours"
    legend = svg.marks(ours, chart.theory, chart.level)
    drawing = svg.dot_chart(f"{chart.axis}: {numbers}.", dots, axis, CARD)
    return f'<div class="numbers">{drawing}{legend}</div>'


def opening(shown: list[Opening], drawn: Collection[str] = ()) -> list[str]:
    """Returns the HTML of the cards, or [] without any.

    Args:
      shown: the content of each card.
      drawn: anchors of sections with a figure. Their cards link the figure; page.js copies the
        figure into a card without a chart.
    """
    if not shown:
        return []
    parts = ['<section id="findings" aria-labelledby="findings-name">']
    parts += [
        '<h2 id="findings-name">Findings</h2>',
        "<p>Five papers study what each part of a transformer does. We ran their claims again, "
        "most at smaller sizes. A verdict states whether the claim held in full.</p>",
        '<ol class="cards">',
    ]
    for one in shown:
        sentence = one.sentence[:1].upper() + one.sentence[1:] or "There is no run yet."
        text = escape(sentence).replace(" %", "&nbsp;%")
        judged = verdict(one.verdict) if one.verdict else '<span class="soft">not judged</span>'
        place = escape(one.anchor)
        links = [f'<a href="#{place}">{"the evidence" if one.sentence else "what it claims"}</a>']
        if one.anchor in drawn:
            css_class = "" if one.chart else ' class="peek"'
            links.append(f'<a{css_class} href="#{place}-drawn">its figure</a>')
        made = [f'<span class="soft">{escape(one.made)}</span>'] if one.made else []
        about = " · ".join([f"{escape(one.item)} {judged}", *links, *made])
        parts.append(
            f'<li><p class="from">{escape(one.paper.title)}, {with_papers(one.paper.source)}</p>'
            f'<p class="said">{text}</p><p class="small">{about}</p>{one.chart}</li>'
        )
    return [*parts, "</ol></section>"]


def how_to_read(records: list[Record], note: str) -> list[str]:
    """Returns the explanation of numbers, verdicts, flags and scales."""
    counts = Counter(record.scale for record in records)
    lines = [
        "<p>This site lists the claim of each table and figure, our numbers, and the command of "
        "every run. Numbers are mean ± standard error over seeds, or over the draws of one "
        "posterior; numbers of rules include the error of the test set. Rules decide the verdict "
        "from 95 % intervals of differences.</p>"
    ]
    lines += [f"<p>{escape(note)}</p>"] if note else []
    if not records:
        return [*lines, '<p class="problem">There is no record yet.</p>']
    names = sorted(counts, key=[*SCALES, *counts].index)
    if len(names) == 1:
        scales = f"<b>All numbers are of scale {escape(names[0])}</b>: {SCALES.get(names[0], '')}."
    else:
        each = "; ".join(
            f"<b>{escape(n)}</b> ({counts[n]} runs): {SCALES.get(n, '')}" for n in names
        )
        scales = f"The numbers have {len(names)} scales; each number names its scale. {each}."
    meanings = "".join(f"<dt>{verdict(v)}</dt><dd>{text}</dd>" for v, text in MEANING.items())
    meanings += "".join(f"<dt>{flag(f)}</dt><dd>{text}</dd>" for f, text in FLAGS.items())
    summary = "<summary>Meaning of verdicts and flags</summary>"
    return [
        *lines,
        f"<p>{scales}</p>",
        f'<details class="meanings">{summary}<dl class="made small">{meanings}</dl></details>',
    ]


def _behind(row: Row) -> str:
    """Returns the scales and seeds of a row, and how many of its rules held."""
    held = sum(finding.verdict == rules.HELD for finding in row.findings)
    parts = [_scales(row)] if row.records else []
    if row.records and row.findings:
        parts.append(f"{held} of {len(row.findings)} rules held")
        for rule_verdict, label in ((rules.NOT_HELD, "failed"), (rules.OPEN, "open")):
            texts = [f'"{f.text}"' for f in row.findings if f.verdict == rule_verdict]
            parts += [f"{label}: {', '.join(texts)}"] if texts else []
    return "; ".join(parts)


def _scales(row: Row) -> str:
    records = row.records.values()
    scales = " and ".join(dict.fromkeys(record.scale for record in records))
    seeds = sorted({len(record.seeds) for record in records})
    if not seeds:
        return ""
    n_seeds = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    changed = max(len(record.overrides.keys() - {"n_seeds"}) for record in records)
    return f"scale {scales}, {n_seeds} seed{'s' * (seeds[-1] > 1)}{differing_settings(changed)}"
