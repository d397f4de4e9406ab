"""The HTML pages: an index with findings and ledger, and a page for each paper.

Each page works without a network and without other files, because style sheet and scripts of this
folder are inside it.
"""

import re
from collections import Counter
from html import escape
from pathlib import Path

from experiments.ledger import summary, tables
from experiments.ledger.item import Paper
from experiments.ledger.ledger import Row
from experiments.ledger.record import Record
from experiments.site import explore, figures
from experiments.site.attachments import Attachments, with_papers
from experiments.site.opening import Opening, how_to_read, of_rows, opening, paper_id
from experiments.site.overview import overview
from experiments.site.section import record_reference, run_details, section, verdict_chip
from jaxformer.report.html import document, folded, table

# In this order, because media queries of page.css override rules of charts.css.
STYLES = ("charts.css", "page.css")
SCRIPTS = ("page.js", *explore.SCRIPTS, "why.js")
ID = re.compile(r'\bid="([\w-]+)"')
ANCHOR_LINK = re.compile(r'href="#([\w-]+)"')


def pages(
    stem: str,
    rows: list[Row],
    records: list[Record],
    problems: list[str],
    title: str,
    note: str = "",
    openings: list[Opening] | None = None,
    folder: Path | None = None,
    split: bool = True,
) -> dict[str, str]:
    """Returns the pages by file name: STEM.html, and STEM_PAPER.html for each paper.

    Args:
      stem: The name of the index without its suffix.
      rows: The rows of the ledger.
      records: All records that were read.
      problems: A line for each record that cannot be used.
      title: The title of the index.
      note: A sentence about the rows that are shown, if they are not all.
      openings: The cards at the top. None takes the findings of the records.
      folder: The folder of the pages, for links to records.
      split: False puts all sections into the index.
    """
    openings = of_rows(rows) if openings is None else openings
    papers = {card.paper.key: card.paper for card in openings}
    papers |= {row.paper.key: row.paper for row in rows}
    index = f"{stem}.html"
    file_of_paper = {key: f"{stem}_{key}.html" if split else index for key in papers}
    files = [index, *dict.fromkeys(file for file in file_of_paper.values() if file != index)]
    attachments = {file: Attachments(folder) for file in files}
    # For each page: {key of a figure: the row that shows it}.
    drawn: dict[str, dict[str, Row]] = {file: {} for file in files}
    sections: dict[str, list[str]] = {file: [] for file in files}
    unused = _unused(rows, records)
    for key, paper in papers.items():
        file = file_of_paper[key]
        runs = {where for card in openings if card.paper == paper for where in card.runs}
        sections[file] += _paper_head(paper, rows, "h1" if split else "h2")
        sections[file] += [
            section(row, drawn[file], attachments[file]) for row in rows if row.paper.key == key
        ]
        sections[file] += [_run(r, attachments[file]) for r in unused if r.where in runs]
        unused = [record for record in unused if record.where not in runs]
    rows_with_figure = {
        tables.name_of(row) for row_of_figure in drawn.values() for row in row_of_figure.values()
    }
    others, unusable = _others(unused, attachments[index]), _unusable(problems, records)
    sections[index] = [
        f"<h1>{escape(title)}</h1>",
        *opening(openings, rows_with_figure),
        *how_to_read(records, note),
        *explore.explore(rows),
        *overview(rows, papers),
        *sections[index],
        *others,
        *unusable,
        *_environments(records),
    ]
    nav = _contents(rows, papers, bool(openings), bool(others), bool(unusable))
    main = {file: "\n".join(parts) for file, parts in sections.items()}
    titles = {file_of_paper[key]: paper.title for key, paper in papers.items()} | {index: title}
    home_of_anchor = {anchor: file for file, text in main.items() for anchor in ID.findall(text)}
    style, scripts = "".join(map(_read, STYLES)), [*map(_read, SCRIPTS)]

    def body(file: str, text: str) -> str:
        contents, sections = (_linked(part, file, home_of_anchor) for part in (nav, text))
        return f"{contents}\n<main>\n{sections}\n</main>\n{attachments[file].packed()}"

    return {
        file: document(titles[file], body(file, text), style, scripts)
        for file, text in main.items()
    }


def page(*args, **options) -> str:
    """Returns all sections as one page (see `pages`)."""
    return pages("page", *args, split=False, **options)["page.html"]


def _read(name: str) -> str:
    return Path(__file__).with_name(name).read_text()


def _paper_head(paper: Paper, rows: list[Row], heading: str) -> list[str]:
    return [
        f'<{heading} id="{paper_id(paper)}">{escape(paper.title)}</{heading}>',
        f'<p class="source">{with_papers(paper.source)}</p>',
        f"<p>{escape(summary.lead(rows, paper.key))}</p>",
    ]


def _linked(text: str, file: str, home_of_anchor: dict[str, str]) -> str:
    """Returns the text with the file's name in each link to an anchor of another page."""

    def link(match: re.Match) -> str:
        home = home_of_anchor.get(match[1], file)
        return match[0] if home == file else f'href="{home}#{match[1]}"'

    return ANCHOR_LINK.sub(link, text)


def _contents(
    rows: list[Row],
    papers: dict[str, Paper],
    has_findings: bool,
    has_others: bool,
    has_unusable: bool,
) -> str:
    """Returns the navigation: papers with their rows, each with a mark of its verdict."""
    has_charts = explore.is_shown(rows)
    links = {"findings": "Findings"} if has_findings else {}
    links |= ({"explore": "Explore"} if has_charts else {}) | {"ledger": "Ledger"}
    parts = [f'<a href="#{anchor}">{text}</a>' for anchor, text in links.items()]
    for paper in papers.values():
        items = "".join(
            f'<li><a href="#{tables.name_of(row)}">{escape(row.item.name)}</a> '
            f"{verdict_chip(row.verdict, dot=True)}</li>"
            for row in rows
            if row.paper.key == paper.key
        )
        link = f'<li><a href="#{paper_id(paper)}">{escape(paper.title)}</a></li>'
        parts.append(folded(escape(paper.key.replace("_", " ")), f"<ul>{link}{items}</ul>"))
    minor_links = {"others": "Other runs"} if has_others else {}
    minor_links |= {"unusable": "Not used"} if has_unusable else {}
    minor_links |= {"environments": "Environments"}
    parts += [f'<a class="minor" href="#{a}">{text}</a>' for a, text in minor_links.items()]
    return f'<nav aria-label="Contents">{"".join(parts)}</nav>'


def _unused(rows: list[Row], records: list[Record]) -> list[Record]:
    """Returns the records that belong to no row."""
    used = {r.where for row in rows for r in (*row.records.values(), *row.stale.values())}
    return [record for record in records if record.where not in used]


def _others(unused: list[Record], attached: Attachments) -> list[str]:
    head = '<h2 id="others">Runs without a table or figure</h2>'
    return [head, *(_run(record, attached) for record in unused)] if unused else []


def _run(record: Record, attached: Attachments) -> str:
    """Returns the section of a run that belongs to no row."""
    where = record_reference(record)
    numbers = ", ".join(
        f'{escape(n)} <data value="{v["mean"]:.6g}" '
        f'data-record="{where}">{tables.measured(v)}</data>'
        for n, v in list(record.metrics.items())[: tables.MAX_METRICS]
        if v["mean"] is not None
    )
    parts = [f'<section class="item"><h3>{escape(record.config_file)}</h3><p>{numbers}</p>']
    parts.append(f'<p class="small soft">scale {escape(record.scale)}</p>')
    if figures.draws(record) and (html := figures.picture(record).html):
        parts.append(f'<figure><div class="panels">{html}</div></figure>')
    parts.append(folded("How it was made", run_details([record], attached)))
    return "".join([*parts, "</section>"])


def _unusable(problems: list[str], records: list[Record]) -> list[str]:
    lines = [*problems, *(f"{r.where}: {r.standing}, {r.stale}" for r in records if r.stale)]
    if not lines:
        return []
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return ['<h2 id="unusable">Records that cannot be used</h2>', f"<ul>{items}</ul>"]


def _environments(records: list[Record]) -> list[str]:
    """Returns the table of machines and versions with their numbers of records by commit."""
    commits_of: dict[tuple[str, str], Counter[str]] = {}  # by machine and versions
    for record in records:
        facts = record.environment
        machine = f"{facts.get('cores')} cores, {facts.get('devices')} x {facts.get('device')}"
        versions = ", ".join(f"{n} {v}" for n, v in sorted(facts.get("versions", {}).items()))
        environment = machine, f"Python {facts.get('python')}, {versions}"
        commits_of.setdefault(environment, Counter())[tables.commit(record)] += 1
    heads = ("machine", "versions", "records", "of these, by commit")
    body = [
        [*map(escape, environment), str(commits.total()), escape(_by_commit(commits))]
        for environment, commits in commits_of.items()
    ]
    return ['<h2 id="environments">Environments</h2>', table(heads, body, ("records",), "cards")]


def _by_commit(counts: Counter[str]) -> str:
    """Returns a text such as "0b3efea 12, dd107f9 30"."""
    return ", ".join(f"{commit} {n}" for commit, n in counts.items())
