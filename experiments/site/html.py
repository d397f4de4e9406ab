"""The page: one HTML file that needs nothing else. Findings, ledger, then a section a paper.

Scripts are ours alone: a policy in the head lets nothing run whose sum it does not name.
"""

import base64
import hashlib
from collections import Counter
from html import escape
from pathlib import Path

from experiments.ledger import summary, tables
from experiments.ledger.item import Paper
from experiments.ledger.ledger import Row
from experiments.ledger.record import Record
from experiments.site import explore, figures
from experiments.site.attachments import Shelf, with_papers
from experiments.site.opening import Opening, how_to_read, of_rows, opening, paper_id
from experiments.site.overview import overview
from experiments.site.section import folded, made, section, table, trail, verdict

SCRIPTS = ("page.js", *explore.SCRIPTS, "why.js")


def page(
    rows: list[Row],
    records: list[Record],
    problems: list[str],
    title: str,
    note: str = "",
    openings: list[Opening] | None = None,
    place: Path | None = None,
) -> str:
    """The whole file, which will lie in the folder `place`.

    `note` says which rows are shown, if not all; `openings` takes the place of our own findings.
    """
    shelf, shown = Shelf(place), dict[str, Row]()
    openings = of_rows(rows) if openings is None else openings
    papers = {one.paper.key: one.paper for one in openings}
    papers |= {row.paper.key: row.paper for row in rows}
    rest = _unused(rows, records)
    parts = [*how_to_read(records, note), *explore.explore(rows), *overview(rows, papers)]
    for paper in papers.values():
        parts.append(f'<h2 id="{paper_id(paper)}">{escape(paper.title)}</h2>')
        parts.append(f'<p class="source">{with_papers(paper.source)}</p>')
        parts.append(f"<p>{escape(summary.lead(rows, paper.key))}</p>")
        parts += [section(row, shown, shelf) for row in rows if row.paper.key == paper.key]
        names = {where for one in openings if one.paper == paper for where in one.runs}
        parts += [_run(record, shelf) for record in rest if record.where in names]
        rest = [record for record in rest if record.where not in names]
    drawn = {tables.name_of(row) for row in shown.values()}
    parts = [f"<h1>{escape(title)}</h1>", *opening(openings, drawn), *parts]
    others, lost = _others(rest, shelf), _unusable(problems, records)
    parts += [*others, *lost, *_environments(records)]
    nav = _contents(rows, papers, bool(openings), [*others[:1], *lost[:1]])
    main = "\n".join(parts)
    return f"{_head(title)}<body>\n{nav}\n<main>\n{main}\n</main>\n{shelf.packed()}\n{_scripts()}"


def _head(title: str) -> str:
    style = Path(__file__).with_name("page.css").read_text()
    allowed = " ".join(f"'sha256-{_sum(text)}'" for text in _texts())
    policy = f"default-src 'none'; img-src data:; style-src 'sha256-{_sum(style)}'; "
    policy += f"script-src {allowed}; base-uri 'none'; form-action 'none'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n"
        '<link rel="icon" href="data:,">\n'
        f"<style>{style}</style>\n</head>\n"
    )


def _scripts() -> str:
    return "".join(f"<script>{text}</script>\n" for text in _texts()) + "</body>\n</html>\n"


def _texts() -> list[str]:
    return [Path(__file__).with_name(name).read_text() for name in SCRIPTS]


def _sum(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _contents(
    rows: list[Row], papers: dict[str, Paper], has_findings: bool, ends: list[str]
) -> str:
    """The way around: papers with their tables and figures, each before a mark of its verdict."""
    links = [("findings", "Findings")] * has_findings
    links += [("explore", "Explore")] * explore.is_shown(rows) + [("ledger", "Ledger")]
    parts = [f'<a href="#{place}">{word}</a>' for place, word in links]
    for paper in papers.values():
        own = [row for row in rows if row.paper.key == paper.key]
        items = "".join(
            f'<li><a href="#{tables.name_of(row)}">{escape(row.item.name)}</a> '
            f"{verdict(row.verdict, dot=True)}</li>"
            for row in own
        )
        link = f'<li><a href="#{paper_id(paper)}">{escape(paper.title)}</a></li>'
        parts.append(folded(escape(paper.key.replace("_", " ")), f"<ul>{link}{items}</ul>"))
    known = {"others": "Other runs", "unusable": "Not used", "environments": "Environments"}
    there = "".join(ends) + ' id="environments"'
    parts += [
        f'<a class="minor" href="#{n}">{word}</a>'
        for n, word in known.items()
        if f'id="{n}"' in there
    ]
    return f'<nav aria-label="Contents">{"".join(parts)}</nav>'


def _unused(rows: list[Row], records: list[Record]) -> list[Record]:
    """Runs that belong to no table or figure."""
    shown = [r for row in rows for r in (*row.records.values(), *row.stale.values())]
    used = {record.where for record in shown}
    return [record for record in records if record.where not in used]


def _others(rest: list[Record], shelf: Shelf) -> list[str]:
    head = '<h2 id="others">Runs beside the tables and figures</h2>'
    return [head, *(_run(record, shelf) for record in rest)] if rest else []


def _run(record: Record, shelf: Shelf) -> str:
    """A run by itself: its numbers, its figure, how it was made."""
    where = trail(record)
    numbers = ", ".join(
        f'{escape(n)} <data value="{v["mean"]:.6g}" '
        f'data-record="{where}">{tables.measured(v)}</data>'
        for n, v in list(record.metrics.items())[: tables.SHOWN]
        if v["mean"] is not None
    )
    parts = [f'<section class="item"><h3>{escape(record.config_file)}</h3><p>{numbers}</p>']
    parts.append(f'<p class="small soft">scale {escape(record.scale)}</p>')
    if figures.draws(record) and (html := figures.picture(record).html):
        parts.append(f'<figure><div class="panels">{html}</div></figure>')
    return "".join([*parts, folded("How it was made", made([record], shelf)), "</section>"])


def _unusable(problems: list[str], records: list[Record]) -> list[str]:
    lines = [*problems, *(f"{r.where}: {r.standing}, {r.stale}" for r in records if r.stale)]
    if not lines:
        return []
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return ['<h2 id="unusable">Records that cannot be used</h2>', f"<ul>{items}</ul>"]


def _environments(records: list[Record]) -> list[str]:
    """Machines and versions, each with how many of the records it made, and at which commits."""
    made: dict[tuple[str, str], Counter[str]] = {}
    for record in records:
        facts = record.environment
        machine = f"{facts.get('cores')} cores, {facts.get('devices')} x {facts.get('device')}"
        versions = ", ".join(f"{n} {v}" for n, v in sorted(facts.get("versions", {}).items()))
        where = machine, f"Python {facts.get('python')}, {versions}"
        made.setdefault(where, Counter())[tables.commit(record)] += 1
    heads = ("machine", "versions", "records", "of these, by commit")
    body = [
        [*map(escape, where), str(commits.total()), escape(_by_commit(commits))]
        for where, commits in made.items()
    ]
    return ['<h2 id="environments">Environments</h2>', table(heads, body, right=("records",))]


def _by_commit(counts: Counter[str]) -> str:
    """ "0b3efea 12, dd107f9 30"."""
    return ", ".join(f"{commit} {n}" for commit, n in counts.items())
