"""Cards at the top of the page: a sentence, a verdict and a chart for each paper."""

import contextlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from html import escape
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from experiments.cli.describe import differing_settings
from experiments.ledger import headline, rules, tables, validate_record
from experiments.ledger.item import FLAGS, Paper
from experiments.ledger.ledger import Row
from experiments.ledger.record import Record
from experiments.papers.sentences import FINDINGS
from experiments.site.attachments import with_papers
from experiments.site.finding_charts import CHARTS
from experiments.site.section import flag_chip, verdict_chip
from jaxformer.core.errors import UserError

# {field of an entry in the file of demo sentences: its type}
FIELDS = {"paper": str, "item": str, "sentence": str, "made": str, "runs": list}
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
    made: str  # the scale and the seeds of the runs, and how many rules held
    verdict: str  # "" if no rule judges the runs
    item: str  # the table or figure with the evidence, such as "Table 2, retrieval"
    anchor: str  # the id of the section with the evidence
    runs: tuple[str, ...] = ()  # runs that the page shows below the paper if no row shows them
    chart: str = ""  # HTML
    full_run: str = ""  # how a demo compares with the recorded runs, shown instead of a verdict


def paper_id(paper: Paper) -> str:
    """Returns the anchor of a paper."""
    return f"paper-{paper.key.replace('_', '-')}"


def of_rows(rows: list[Row]) -> list[Opening]:
    """Returns the content of a card for each finding whose item is among the rows."""
    row_of = {(row.paper.key, row.item.name): row for row in rows}
    cards = []
    for paper, item, sentence in FINDINGS:
        if row := row_of.get((paper, item)):
            text = drawing = ""
            with contextlib.suppress(KeyError):  # one of its runs is missing
                text, drawing = sentence(row.records), CHARTS[paper](row.records).html()
            card = Opening(
                paper=row.paper,
                sentence=text,
                made=_provenance(row),
                verdict=headline.verdict(row),
                item=item,
                anchor=tables.name_of(row),
                chart=drawing,
            )
            cards.append(card)
    return cards


def of_file(
    file: Path, papers: Mapping[str, Paper], rows: Sequence[Row], records: Sequence[Record]
) -> list[Opening]:
    """Returns the cards of the file that demo.py writes; each links to the section of its runs.

    The file is a JSON list of {"paper": key, "item": name, "sentence": text, "made": text,
    "runs": [folder, ..]}. Optional are "cells": [cell of each run, ..] for the chart, and
    "full_run": how the runs compare with the recorded ones.
    """
    try:
        return [_of_entry(entry, papers, rows, records) for entry in validate_record.content(file)]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{file} is not a file of demo sentences: {error}.") from None


def _of_entry(
    entry: Any, papers: Mapping[str, Paper], rows: Sequence[Row], records: Sequence[Record]
) -> Opening:
    for name, kind in FIELDS.items():
        if not isinstance(entry[name], kind):
            raise ValueError(f"{name!r} should be a {kind.__name__}")
    paper, folders = papers[entry["paper"]], {str(name) for name in entry["runs"]}
    runs = [record for record in records if PurePath(record.where).name in folders]
    item_rows = [r for r in rows if (r.paper.key, r.item.name) == (paper.key, entry["item"])]
    rows_with_runs = (r for r in item_rows if any(record in runs for record in r.records.values()))
    judged_row = next(rows_with_runs, None)
    decided = [tables.rules_with_runs(judged_row)] if judged_row else []
    run_of_folder = {PurePath(record.where).name: record for record in runs}
    cells = {
        cell: run_of_folder[name]
        for cell, name in zip(entry.get("cells", ()), entry["runs"])
        if name in run_of_folder
    }
    chart = ""
    with contextlib.suppress(KeyError):  # a run or a number is missing
        chart = CHARTS[paper.key](cells).html()
    return Opening(
        paper=paper,
        sentence=entry["sentence"],
        made="; ".join(filter(None, [entry["made"], *decided])),
        verdict=judged_row.verdict if judged_row else "",
        item=entry["item"],
        anchor=tables.name_of(judged_row) if judged_row else paper_id(paper),
        runs=tuple(record.where for record in runs),
        chart=chart,
        full_run=str(entry.get("full_run", "")),
    )


def opening(cards: list[Opening], drawn: Collection[str] = ()) -> list[str]:
    """Returns the HTML of the cards, or [] without any.

    Args:
      cards: The cards.
      drawn: The anchors of the sections with a figure. Their cards link the figure. page.js copies
        the figure into a card without a chart.
    """
    if not cards:
        return []
    parts = ['<section id="findings" aria-labelledby="findings-name">']
    parts += [
        '<h2 id="findings-name">Findings</h2>',
        "<p>Five papers study what each part of a transformer does. We ran their claims again, "
        "most at smaller sizes. A verdict states whether the claim held in full.</p>",
        '<ol class="cards">',
    ]
    for card in cards:
        sentence = card.sentence[:1].upper() + card.sentence[1:]
        text = escape(sentence or "There is no run yet.").replace(" %", "&nbsp;%")
        chip = '<span class="soft">not judged</span>'
        if card.full_run:
            chip = f'<span class="soft">demo {escape(card.full_run)}</span>'
        elif card.verdict:
            chip = verdict_chip(card.verdict)
        anchor = escape(card.anchor)
        links = [f'<a href="#{anchor}">{"the evidence" if card.sentence else "what it claims"}</a>']
        if card.anchor in drawn:
            css_class = "" if card.chart else ' class="peek"'
            links.append(f'<a{css_class} href="#{anchor}-drawn">its figure</a>')
        made = [f'<span class="soft">{escape(card.made)}</span>'] if card.made else []
        about = " · ".join([f"{escape(card.item)} {chip}", *links, *made])
        source = f"{escape(card.paper.title)}, {with_papers(card.paper.source)}"
        parts.append(
            f'<li><p class="from">{source}</p><p class="sentence">{text}</p>'
            f'<p class="small">{about}</p>{card.chart}</li>'
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
    meanings = "".join(f"<dt>{verdict_chip(v)}</dt><dd>{text}</dd>" for v, text in MEANING.items())
    meanings += "".join(f"<dt>{flag_chip(f)}</dt><dd>{text}</dd>" for f, text in FLAGS.items())
    summary = "<summary>Meaning of verdicts and flags</summary>"
    return [
        *lines,
        f"<p>{scales}</p>",
        f'<details class="meanings">{summary}<dl class="made small">{meanings}</dl></details>',
    ]


def _provenance(row: Row) -> str:
    """Returns the scales and seeds of a row, and how many of its rules held."""
    held = sum(finding.verdict == rules.HELD for finding in row.findings)
    parts = [headline.note(row)] if headline.confirmation(row) else []
    parts += [_scales(row)] if row.records else []
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
