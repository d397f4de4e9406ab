"""The gallery of the site: a thumbnail and a page for each recorded figure of results/."""

import functools
import json
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import site_rows
import site_statements

from experiments.cli import flags
from experiments.ledger import headline
from experiments.ledger.ledger import Row
from experiments.ledger.record import run_name
from experiments.papers import PAPERS
from experiments.site.section import verdict_chip
from jaxformer.report.html import folded

ROOT = Path(__file__).parents[1]
THUMBNAIL_PIXELS = 560  # the width of a thumbnail
PAPER_OF_FOLDER = {"text": "mixit"}  # {folder of configs: paper}, for configs that no claim uses


class Figure(NamedTuple):
    """A recorded figure."""

    name: str  # the name of its page
    paper: str  # a key of PAPERS
    picture: Path
    record: dict[str, Any]

    @property
    def row(self) -> tuple[Row, str] | None:
        """The claim that the run belongs to, and its name there.

        None for a run of no claim, and for a table of statements, which belongs to many.
        """
        if site_statements.table(self.picture.with_suffix(".csv")):
            return None
        return site_rows.rows_by_hash().get(self.record["config_hash"])

    @property
    def title(self) -> str:
        """The finding: the rule that decided the claim, or what the config is about."""
        if self.row is None:
            docstring = flags.config_docstring(self.record["config_file"])
            return " ".join(docstring.partition("\n\n")[0].split())
        row, _ = self.row
        sentence, _ = headline.decisive_numbers(row)
        text = sentence or row.item.claim
        return f"{row.item.name}: {text[:1].upper()}{text[1:]}"

    @property
    def verdict(self) -> str:
        """The verdict as a coloured word; "" for a run of no claim."""
        return "" if self.row is None else verdict_chip(headline.verdict(self.row[0]))

    @property
    def variant(self) -> str:
        """The name of the run among the runs of its claim, such as "T = 32"."""
        overrides = ", ".join(f"{k} = {v}" for k, v in self.record["overrides"].items())
        return self.row[1] if self.row else overrides or self.record["scale"]

    @property
    def page(self) -> str:
        return f"figures/{self.name}"


@functools.cache
def figures() -> tuple[Figure, ...]:
    """Returns the recorded figures in the order of papers and configs."""
    all_figures, papers = [], _paper_of_config()
    for picture in sorted((ROOT / "results").rglob("*.png")):
        record = json.loads(picture.with_suffix(".json").read_text())
        file = record["config_file"].partition(":")[0]
        folder = Path(file).parts[1]
        paper = papers.get(file) or PAPER_OF_FOLDER.get(folder, folder)
        name = run_name(record["config"], record["config_hash"])
        all_figures.append(Figure(name, paper, picture, record))
    order = [*PAPERS]
    return tuple(sorted(all_figures, key=lambda figure: (order.index(figure.paper), figure.name)))


def _paper_of_config() -> dict[str, str]:
    """Maps the file of a config to the first paper with a claim about its runs."""
    papers: dict[str, str] = {}
    for key, paper in PAPERS.items():
        for item in paper.items:  # rows of the ledger, each with a claim
            for cell in item.cells.values():  # the runs of the claim
                papers.setdefault(cell.config.partition(":")[0], key)
    return papers


def wall(paper: str, to_root: str) -> str:
    """The thumbnails of a paper; `to_root` leads from the page to the root.

    Runs of one claim share a thumbnail, because they look alike: links below it lead to the others.
    """
    by_title: dict[str, list[Figure]] = {}
    for figure in figures():
        if figure.paper == paper:
            by_title.setdefault(figure.title, []).append(figure)
    cards = [_card(title, same, to_root) for title, same in by_title.items()]
    return f'<div class="wall">{"".join(cards)}</div>'


def _card(title: str, runs: list[Figure], to_root: str) -> str:
    first, *others = runs
    more = " · ".join(
        f'<a href="{to_root}{run.page}.html">{escape(run.variant)}</a>' for run in others
    )
    below = f'<p class="more">also {more}</p>' if more else ""
    return (
        f'<div><a href="{to_root}{first.page}.html"><img loading="lazy" width="280" alt="" '
        f'src="{to_root}{first.page}.webp"><span>{escape(title)}</span></a> '
        f"{first.verdict}{below}</div>"
    )


def gallery() -> str:
    """Returns the Markdown of the gallery: the thumbnails of each paper."""
    parts = []
    for key, paper in PAPERS.items():
        if any(figure.paper == key for figure in figures()):
            parts += [f"## {paper.title}", "", raw(wall(key, "")), ""]
    return "\n".join(parts)


def raw(html: str) -> str:
    """Returns a Markdown block that puts HTML into the page."""
    return f"```{{raw}} html\n{html}\n```"


def pages(app: Any) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yields the page of each figure for Sphinx."""
    for figure in figures():
        record = figure.record
        command = flags.run_command(record["config_file"], record["overrides"])
        facts = {
            "Config": f"<code>{escape(record['config_file'])}</code>",
            "Hash of the config": f"<code>{escape(record['config_hash'])}</code>",
            "Seeds": ", ".join(map(str, record["seeds"])),
            "CPU seconds": f"{record['seconds'].get('cpu', 0):.0f}",
            "Record": f"<code>{figure.picture.with_suffix('.json').relative_to(ROOT)}</code>",
        }
        rows = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts.items())
        results = f"../results/{figure.paper}.html"
        body = (
            f"<h1>{escape(figure.title)}</h1><p>{figure.verdict} {escape(figure.variant)}</p>"
            f"{_picture(figure)}"
            "<p>This command draws the figure again:</p>"
            f'<div class="highlight"><pre tabindex="0">{escape(command)}</pre></div>'
            f'<dl class="facts">{rows}</dl>'
            f'<p><a href="{results}">Claims and numbers of {escape(PAPERS[figure.paper].title)}</a>'
            ' · <a href="../gallery.html">All figures</a></p>'
        )
        yield figure.page, {"title": figure.title, "body": body}, "page.html"


def _picture(figure: Figure) -> str:
    image = (
        f'<p><img class="recorded" alt="Figure of {escape(figure.title)}" '
        f'src="{figure.name}.png"></p>'
    )
    if statements := site_statements.table(figure.picture.with_suffix(".csv")):
        return statements + folded("The same as a picture", image)
    return image


def write_pictures(app: Any, error: Exception | None) -> None:
    """Copies the figures and their thumbnails into the built site."""
    if error or app.builder.format != "html":
        return
    from PIL import Image

    for figure in figures():
        target = Path(app.outdir) / f"{figure.page}.png"
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(figure.picture.read_bytes())
        with Image.open(figure.picture) as opened:
            pixels = opened.convert("RGBA")
        # The figure on white, because the thumbnail has no transparency.
        flat = Image.new("RGB", pixels.size, "white")
        flat.paste(pixels, mask=pixels.getchannel("A"))
        flat.thumbnail((THUMBNAIL_PIXELS, THUMBNAIL_PIXELS))
        flat.save(target.with_suffix(".webp"), quality=70)
