"""What the page opens with: a sentence for each paper with its number, verdict and evidence."""

from collections import Counter
from collections.abc import Collection
from html import escape
from typing import NamedTuple

from experiments.cli.describe import differing
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
    rules.HELD: "everything that the paper claims there is true in our runs, beyond their errors.",
    rules.NOT_HELD: "something that it claims there is not so in our runs, beyond their errors.",
    rules.OPEN: "the errors are too large or not known, or runs are missing.",
    rules.NOT_RUN: "there is no usable record; the command stands in its section.",
    rules.MISSING: "it needs data, weights or a machine that the repository does not have.",
    rules.DEFINITION: "a drawing or a table of settings, which claims no number; where it is here.",
}
SCALES = {
    "tiny": "ends in seconds; it shows that the code runs, hardly whether the claim holds",
    "small": "minutes on two cores; made to show the effect",
    "paper": "the published sizes; what differs stands beside the run",
}


class Opening(NamedTuple):
    """One sentence of the opening."""

    paper: Paper
    sentence: str  # "" where nothing was run yet
    made: str  # at which scale, of how many seeds, and what decided the verdict
    verdict: str  # of the table or figure; "" if the runs are not judged
    item: str  # "Table 2, retrieval"
    anchor: str  # the section with the evidence
    runs: tuple[str, ...] = ()  # that are shown under its paper where no table has them
    chart: str = ""  # its numbers as a chart


def paper_id(paper: Paper) -> str:
    """The anchor of a paper."""
    return f"paper-{paper.key.replace('_', '-')}"


def of_rows(rows: list[Row]) -> list[Opening]:
    """The findings of the records, for the papers of these rows."""
    found = {(row.paper.key, row.item.name): row for row in rows}
    shown = []
    for one in findings.FINDINGS:
        if row := found.get((one.paper, one.item)):
            texts = findings.sentence(one, row), _behind(row), row.verdict, row.item.name
            chart = findings.chart(one, row)
            drawn = _drawn(chart) if chart else ""
            shown.append(Opening(row.paper, *texts, tables.name_of(row), chart=drawn))
    return shown


def _drawn(chart: Chart) -> str:
    """A finding's numbers as a chart of dots, with what its marks are."""
    errors = {n: dot.ours.error if dot.ours.error > 0 else 0.0 for n, dot in chart.dots.items()}
    dots = [
        svg.Dot(name, dot.ours.mean, errors[name], dot.beside, dot.level)
        for name, dot in chart.dots.items()
    ]
    said = ", ".join(f"{name} {dot.ours}" for name, dot in chart.dots.items())
    axis = svg.Axis(chart.axis, limits=chart.limits)
    ours = "ours; bars are standard errors" if any(errors.values()) else "ours"
    legend = svg.marks(ours, chart.beside, chart.level)
    drawing = svg.dot_chart(f"{chart.axis}: {said}.", dots, axis, CARD)
    return f'<div class="numbers">{drawing}{legend}</div>'


def opening(shown: list[Opening], drawn: Collection[str] = ()) -> list[str]:
    """The section; [] without papers. `drawn` are the anchors of the sections with a figure.

    The card of such a section links its figure. A card without a chart of its own gets a copy of it
    from the script.
    """
    if not shown:
        return []
    parts = ['<section id="findings" aria-labelledby="findings-name">']
    parts += [
        '<h2 id="findings-name">What was found</h2>',
        "<p>Five papers say which part of a transformer does what. Their claims were run again, "
        "most of them smaller; a verdict says whether a claim held in full.</p>",
        '<ol class="cards">',
    ]
    for one in shown:
        sentence = one.sentence[:1].upper() + one.sentence[1:] or "Nothing of it was run yet."
        said = escape(sentence).replace(" %", "&nbsp;%")
        judged = verdict(one.verdict) if one.verdict else '<span class="soft">not judged</span>'
        place = escape(one.anchor)
        links = [f'<a href="#{place}">{"the evidence" if one.sentence else "what it claims"}</a>']
        if one.anchor in drawn:
            kind = "" if one.chart else ' class="peek"'
            links.append(f'<a{kind} href="#{place}-drawn">its figure</a>')
        made = [f'<span class="soft">{escape(one.made)}</span>'] if one.made else []
        about = " · ".join([f"{escape(one.item)} {judged}", *links, *made])
        parts.append(
            f'<li><p class="from">{escape(one.paper.title)}, {with_papers(one.paper.source)}</p>'
            f'<p class="said">{said}</p><p class="small">{about}</p>{one.chart}</li>'
        )
    return [*parts, "</ol></section>"]


def how_to_read(records: list[Record], note: str) -> list[str]:
    """What numbers, verdicts, flags and scales mean."""
    counts = Counter(record.scale for record in records)
    lines = [
        "<p>What each table and figure of the papers claims, what our runs measured, and the "
        "command of every run. Numbers are mean ± standard error over seeds, or over "
        "the draws of one posterior; that of a finding "
        "has the test set's error in it. A verdict says whether the paper's claim held: rules "
        "about what it claims decide, where the 95 % interval of a difference lies whole on one "
        "side.</p>"
    ]
    lines += [f"<p>{escape(note)}</p>"] if note else []
    if not records:
        return [*lines, '<p class="problem">There is no record: nothing was run yet.</p>']
    names = sorted(counts, key=[*SCALES, *counts].index)
    if len(names) == 1:
        told = f"<b>All numbers are of scale {escape(names[0])}</b>: {SCALES.get(names[0], '')}."
    else:
        each = "; ".join(
            f"<b>{escape(n)}</b> ({counts[n]} runs): {SCALES.get(n, '')}" for n in names
        )
        told = f"The numbers are of {len(names)} scales, and each says its own. {each}."
    meanings = "".join(f"<dt>{verdict(v)}</dt><dd>{text}</dd>" for v, text in MEANING.items())
    meanings += "".join(f"<dt>{flag(f)}</dt><dd>{text}</dd>" for f, text in FLAGS.items())
    words = "<summary>What the verdicts and flags mean</summary>"
    return [
        *lines,
        f"<p>{told}</p>",
        f'<details class="meanings">{words}<dl class="made small">{meanings}</dl></details>',
    ]


def _behind(row: Row) -> str:
    """The scales and seeds of a row, and how many of its rules held."""
    held = sum(finding.verdict == rules.HELD for finding in row.findings)
    told = [_scales(row)] if row.records else []
    if row.records and row.findings:
        told.append(f"{held} of {len(row.findings)} rules held")
        for word, said in ((rules.NOT_HELD, "failed"), (rules.OPEN, "open")):
            texts = [f'"{f.text}"' for f in row.findings if f.verdict == word]
            told += [f"{said}: {', '.join(texts)}"] if texts else []
    return "; ".join(told)


def _scales(row: Row) -> str:
    records = row.records.values()
    scales = " and ".join(dict.fromkeys(record.scale for record in records))
    seeds = sorted({len(record.seeds) for record in records})
    if not seeds:
        return ""
    many = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    changed = max(len(record.overrides.keys() - {"n_seeds"}) for record in records)
    return f"scale {scales}, {many} seed{'s' * (seeds[-1] > 1)}{differing(changed)}"
