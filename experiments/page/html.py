"""The page: one HTML file that needs nothing else. The ledger first, then a section a paper."""

from collections import Counter
from html import escape
from pathlib import Path

from experiments.ledger import rules, summary, tables
from experiments.ledger.item import FLAGS, Paper
from experiments.ledger.ledger import Row
from experiments.ledger.record import Record
from experiments.page import figures
from experiments.page.section import (
    finding_texts,
    flag,
    folded,
    made,
    marked,
    section,
    table,
    verdict,
)

MEANING = {
    rules.HELD: "all that the paper claims there is so in our runs, beyond their errors.",
    rules.NOT_HELD: "something that it claims there is not so in our runs, beyond their errors.",
    rules.OPEN: "the errors are too large or not known, or runs are missing.",
    rules.NOT_RUN: "there is no usable record; the command stands in its section.",
    rules.MISSING: "it needs data, weights or a machine that the repository does not have.",
    rules.DEFINITION: "a drawing or a table of settings, which claims no number; where it is here.",
}
SCALES = {
    "tiny": "ends in seconds; it shows that the code runs, hardly whether the claim holds",
    "small": "minutes on two cores; made to show the effect",
    "paper": "the published setting",
}


def page(
    rows: list[Row], records: list[Record], problems: list[str], title: str, note: str = ""
) -> str:
    """The whole file; `note` says which rows are shown, if not all."""
    style = Path(__file__).with_name("page.css").read_text()
    papers = {row.paper.key: row.paper for row in rows}
    shown: dict[str, Row] = {}
    parts = [f"<h1>{escape(title)}</h1>", *_introduction(records, note), *_overview(rows, papers)]
    for paper in papers.values():
        parts.append(f'<h2 id="{_id(paper)}">{escape(paper.title)}</h2>')
        parts.append(f'<p class="source">{escape(paper.source)}</p>')
        parts.append(f"<p>{escape(summary.lead(rows, paper.key))}</p>")
        parts += [section(row, shown) for row in rows if row.paper.key == paper.key]
    parts += [*_others(rows, records), *_unusable(problems, records), *_environments(records)]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n"
        '<link rel="icon" href="data:,">\n'
        f"<style>\n{style}</style>\n</head>\n<body>\n" + "\n".join(parts) + "\n</body>\n</html>\n"
    )


def _introduction(records: list[Record], note: str) -> list[str]:
    counts = Counter(record.scale for record in records)
    lines = [
        "<p>What each table and figure of the papers claims, what our runs measured, and the "
        "command of every run. Numbers are mean ± standard error over seeds; that of a finding "
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
    return [*lines, f"<p>{told}</p>", f'<dl class="made small">{meanings}</dl>']


def _overview(rows: list[Row], papers: dict[str, Paper]) -> list[str]:
    """Counts by paper, then the ledger: a row a table or figure, linked to its section."""
    head = "".join(f'<th class="number">{word}</th>' for word in rules.SHOWN)
    lines, body = [], []
    for paper in papers.values():
        own = [row for row in rows if row.paper.key == paper.key]
        counts = Counter(row.verdict for row in own)
        cells = "".join(f'<td class="number">{counts[word] or "-"}</td>' for word in rules.SHOWN)
        link = f'<a href="#{_id(paper)}">{escape(paper.title)}</a>'
        lines.append(f'<tr><td class="title">{link}</td>{cells}</tr>')
        body.append(f'<tr class="paper"><th colspan="4">{escape(paper.title)}</th></tr>')
        body += map(_ledger_row, own)
    return [
        '<h2 id="ledger">The ledger</h2>',
        f"<p>{escape(summary.luck(rows))}</p>",
        f'<div class="scroll"><table><thead><tr><th>paper</th>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>",
        '<table class="ledger"><thead><tr><th>table or figure</th><th>the paper claims</th>'
        f"<th>our runs</th><th>verdict</th></tr></thead><tbody>{''.join(body)}</tbody></table>",
    ]


def _ledger_row(row: Row) -> str:
    """The finding that decided the verdict stands for the item."""
    decided = (text for f, text in finding_texts(row) if f.verdict == row.verdict and f.numbers)
    missing = len(tables.missing(row))
    open_ones = f"{missing} run{'s' * (missing > 1)} to make" if missing else ""
    needs = f"needs {marked(row.item.needs)}" if row.item.needs else ""
    ours = next(decided, needs or open_ones or marked(row.item.defines))
    ours += "; a stale record" if row.stale else ""
    part = tables.decided(row)
    part = f"<br><span class=small>{part}</span>" if part else ""
    part += "".join(f"<br>{flag(word)}" for word in row.flags)
    also = f"<br><span class=small>{escape(row.item.also)}</span>" if row.item.also else ""
    link = f'<a href="#{tables.name_of(row)}">{escape(row.item.name)}</a>{also}'
    return (
        f'<tr class="row"><td>{link}</td><td>{escape(row.item.claim)}</td><td>{ours}</td>'
        f"<td>{verdict(row.verdict)}{part}</td></tr>"
    )


def _others(rows: list[Row], records: list[Record]) -> list[str]:
    """Runs that belong to no table or figure."""
    shown = [r for row in rows for r in (*row.records.values(), *row.stale.values())]
    used = {record.where for record in shown}
    rest = [record for record in records if record.where not in used]
    if not rest:
        return []
    parts = ['<h2 id="others">Runs beside the tables and figures</h2>']
    for record in rest:
        where = escape(record.where)
        numbers = ", ".join(
            f'{escape(n)} <data value="{v["mean"]}" data-record="{where}">'
            f"{tables.measured(v)}</data>"
            for n, v in list(record.metrics.items())[: tables.SHOWN]
            if v["mean"] is not None
        )
        parts.append(f'<section class="item"><h3>{escape(record.config_file)}</h3><p>{numbers}</p>')
        if record.figure:
            html = figures.picture(record, record.figure).html
            parts.append(f'<figure><div class="panels">{html}</div></figure>')
        parts.append(folded("How it was made", made([record])) + "</section>")
    return parts


def _unusable(problems: list[str], records: list[Record]) -> list[str]:
    lines = [*problems, *(f"{r.where}: {r.standing}, {r.stale}" for r in records if r.stale)]
    if not lines:
        return []
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return ['<h2 id="unusable">Records that cannot be used</h2>', f"<ul>{items}</ul>"]


def _environments(records: list[Record]) -> list[str]:
    """Machines and versions, each with how many of the records it made."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for record in records:
        facts = record.environment
        machine = f"{facts.get('cores')} cores, {facts.get('devices')} x {facts.get('device')}"
        versions = ", ".join(f"{n} {v}" for n, v in sorted(facts.get("versions", {}).items()))
        counts[machine, f"Python {facts.get('python')}, {versions}", tables.commit(record)] += 1
    heads = ("records", "machine", "versions", "commit")
    body = [[str(n), *map(escape, words)] for words, n in counts.items()]
    whole = table(heads, body, right=("records",))
    return ['<h2 id="environments">Environments</h2>', f'<div class="scroll">{whole}</div>']


def _id(paper: Paper) -> str:
    return f"paper-{paper.key.replace('_', '-')}"
