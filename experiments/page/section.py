"""A table or figure of a paper as a section of the page: claim, findings, numbers, figure, runs."""

import base64
from collections.abc import Collection, Iterable, Sequence
from html import escape

from experiments.ledger import tables
from experiments.ledger.item import FLAGS
from experiments.ledger.ledger import Row
from experiments.ledger.record import Record
from experiments.ledger.rules import Finding
from experiments.page import figures, groups

NUMBERS = ("published", "measured", "n", "baseline")


def section(row: Row, shown: dict[str, Row]) -> str:
    """The section; `shown` maps drawn records to the row of their figure, and grows."""
    name, item = tables.name_of(row), row.item
    parts = [f'<section class="item" id="{name}">']
    parts.append(f"<h3>{escape(item.name)} {verdict(row.verdict)}</h3>")
    also = f" ({escape(item.also)} too)" if item.also else ""
    parts.append(f'<p class="claim"><b>The paper{also}:</b> {escape(item.claim)}</p>')
    parts += [f'<p class="caveat">{flag(word)} {escape(FLAGS[word])}</p>' for word in row.flags]
    if item.note:
        parts.append(f'<p class="caveat"><b>Caveat:</b> {marked(item.note)}</p>')
    if item.defines:
        parts.append(f"<p><b>Here:</b> {marked(item.defines)}</p>")
    if item.needs:
        parts.append(f'<p class="caveat"><b>Not in the repository:</b> {marked(item.needs)}.</p>')
    problems = (*row.problems, *tables.stale_lines(row))
    parts += [f'<p class="problem">{escape(text)}</p>' for text in problems]
    parts += [*_findings(row), *_numbers(row)]
    before: list[Record] = []
    for figure in (*figures.figures(row), *groups.by_kind(row)):
        parts.append(_figure(figure, row, shown, before))
        before = figure.records
    parts += _open(row)
    return "\n".join([*parts, "</section>"])


def verdict(word: str) -> str:
    return f'<span class="verdict {word.replace(" ", "-")}">{word}</span>'


def flag(word: str) -> str:
    return f'<span class="flag">{escape(word)}</span>'


def finding_texts(row: Row, checks: bool = False) -> list[tuple[Finding, str]]:
    """Each finding with its numbers, which name the records that they come from."""
    findings = []
    for finding, holds, sides in tables.said(row, checks):
        text = escape(finding.text)
        if holds:
            where = " ".join(sorted({row.records[c].where for s in sides for c in s.cells}))
            numbers = f'data-records="{escape(where)}">{escape(finding.numbers)}'
            text += f'? {holds}: <span class="numbers" {numbers}</span>'
        findings.append((finding, text))
    return findings


def made(records: list[Record]) -> str:
    """Config, command, seeds, commit and file of some records."""
    blocks = []
    for record in records:
        facts = {
            "config": record.config_file,
            "seeds": ", ".join(map(str, record.seeds)),
            "scale": record.scale,
            "commit": tables.commit(record),
            "record": record.where,
            "time": f"{record.seconds.get('cpu', 0):.0f} CPU seconds",
        }
        rows = "".join(f"<dt>{k}</dt><dd><code>{escape(v)}</code></dd>" for k, v in facts.items())
        why = f"{record.standing.capitalize()}: {escape(record.stale)}"
        old = f'<p class="problem">{why}</p>' if record.stale else ""
        blocks.append(f'{old}<dl class="made">{rows}</dl><pre>{escape(record.command)}</pre>')
    return "".join(blocks)


def download(name: str, kind: str, text: str) -> str:
    """A link that saves a text, without a server."""
    data = base64.b64encode(text.encode()).decode()
    mime = {"csv": "text/csv", "tex": "text/x-tex"}[kind]
    link = f'download="{name}.{kind}" href="data:{mime};charset=utf-8;base64,{data}"'
    return f"<a {link}>{'LaTeX' if kind == 'tex' else 'CSV'}</a>"


def marked(text: str) -> str:
    """Text whose `code` stands between backticks."""
    words = escape(text).split("`")
    return "".join(f"<code>{w}</code>" if i % 2 else w for i, w in enumerate(words))


def _findings(row: Row) -> list[str]:
    if not row.item.rules:
        return ['<p class="caveat">No rule decides on it yet.</p>'] if row.records else []
    lines = [f"<li>{verdict(f.verdict)} {text}</li>" for f, text in finding_texts(row)]
    beside = [f"<li>Beside the claim: {text}</li>" for _, text in finding_texts(row, checks=True)]
    return ['<ul class="findings">', *lines, *beside, "</ul>"]


def _numbers(row: Row) -> list[str]:
    """Cells beside the published values; a cell without a record says so."""
    lines = tables.lines(row)
    if not any(line.record for line in lines):
        return []
    several = len({line.metric for line in lines}) > 1
    heads = [name for name in lines[0].words() if several or name != "metric"]
    body = []
    for line in lines:
        cells = {name: escape(words) for name, words in line.words().items()}
        cells["measured"] = _measured(line)
        if line.baseline is not None:
            name = escape(line.baseline_name).replace("_", " ")
            cells["baseline"] += f" <span class=soft>{name}</span>"
        unruled = '<span class="soft">no rule</span>'
        cells["verdict"] = verdict(line.verdict) if line.verdict else unruled
        body.append([cells[name] for name in heads])
    caption = f'<p class="small soft">{escape(row.item.metric)}, mean ± standard error</p>'
    name, csv, tex = tables.name_of(row), tables.as_csv(row), tables.as_latex(row)
    links = f"{download(name, 'csv', csv)} {download(name, 'tex', tex)}"
    return [
        "" if several else caption,
        f'<div class="scroll">{table(heads, body, NUMBERS)}</div>',
        f'<p class="small">This table: {links}</p>',
    ]


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[str] = ()) -> str:
    """A table of ready cells; the columns of the names in `right` are numbers."""
    sides = [' class="number"' if name in right else "" for name in heads]
    head = "".join(f"<th{side}>{name}</th>" for side, name in zip(sides, heads, strict=True))
    body = (
        "".join(f"<td{side}>{cell}</td>" for side, cell in zip(sides, cells, strict=True))
        for cells in rows
    )
    body = "".join(f"<tr>{cells}</tr>" for cells in body)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def folded(head: str, body: str, is_open: bool = False) -> str:
    """What the reader opens."""
    return f"<details{' open' * is_open}><summary>{head}</summary>{body}</details>"


def _measured(line: tables.Line) -> str:
    if line.record is None:
        return "not run"
    if line.value is None or line.value["mean"] is None:
        return "-"
    where, mean = escape(line.record.where), line.value["mean"]
    text = tables.measured(line.value) + (f" ({line.record.standing})" if line.stale else "")
    return f'<data value="{mean}" data-record="{where}">{text}</data>'


def _figure(figure: figures.Figure, row: Row, shown: dict[str, Row], before: list[Record]) -> str:
    """A figure with what made it; one that stands further up is linked, not repeated."""
    key = figure.title + " ".join(record.where for record in figure.records)
    title = f"<p>{escape(figure.title)}</p>" if figure.title else ""
    if key in shown:
        there = shown[key]
        where = there.item.name if there.paper == row.paper else f"{there.item.name} above"
        link = f'<a href="#{tables.name_of(there)}">{escape(where)}</a>'
        return f"<p>{escape(figure.title)} The figure stands at {link}.</p>"
    shown[key], name = row, tables.name_of(row)
    link = download(f"{name}-figure", "csv", figure.csv)
    numbers = f" The numbers behind it: {link}." if figure.csv else ""
    drawn = (
        f'<figure><div class="panels">{figure.html}</div>{figure.legend}'
        f"<figcaption>{title}<span>{numbers}</span></figcaption></figure>"
    )
    if figure.records == before:
        return f'{drawn}<p class="small soft">Made by the same runs.</p>'
    n, first = len(figure.records), figure.records[0]
    told = f"{n} runs" if n > 1 else escape(first.config_file)
    commits = ", ".join(dict.fromkeys(map(tables.commit, figure.records)))
    scales = ", ".join(dict.fromkeys(record.scale for record in figure.records))
    head = f"How it was made: {told}, scale {escape(scales)}, commit {escape(commits)}"
    return drawn + folded(head, made(figure.records), n == 1)


def _open(row: Row) -> list[str]:
    """The commands of what was not run, and of more seeds for what they would decide."""
    more = tables.more_seeds(row)
    parts = [f"<p>More seeds would tell:</p><pre>{escape(more)}</pre>"] if more else []
    commands = tables.missing(row)
    if not commands:
        return parts
    n = len(commands)
    told = f"{n} run{'s' * (n > 1)} of {len(row.item.cells)} not yet made"
    lines = escape("\n".join(commands.values()))
    head = f"{told}; to make {'it' if n == 1 else 'them'}:"
    return [*parts, folded(head, f"<pre>{lines}</pre>", n == 1)]
