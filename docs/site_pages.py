"""Completes the pages of the site: adds generated parts, removes links to files outside docs/."""

import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # the tests load this file alone

import site_figures
import site_rows

from experiments.ledger.record import Record
from experiments.ledger.rules import SHOWN
from experiments.papers import PAPERS
from experiments.site import explore
from experiments.site.section import verdict_chip
from experiments.site.thumbnails import thumbnail

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(!?)\[([^\]]+)\]\(([\w./-]+)(?:#[\w-]+)?\)")
WITHIN = re.compile(r"\[([^\]]+)\]\(#[\w-]+\)")  # a link to a heading of the same page
THUMBNAIL = re.compile(r"<!-- thumbnail: (.+) -->")
VERDICT = re.compile(rf"\*\*({'|'.join(SHOWN)})\*\*")
# Without myst-nb the site has no notebooks.
HAS_NOTEBOOKS = find_spec("myst_nb") is not None
NOTEBOOKS = ("look_inside", "which_part", "real_models") if HAS_NOTEBOOKS else ()
# The cards of the first page: picture, its description, page, title, text.
CARDS = (
    (
        "pictures/atlas.svg",
        "Tasks by changes of a transformer, coloured by what is lost",
        "atlas.md",
        "What does each part do?",
        "One transformer, 17 tasks: what must be trained, what may stay random, what can go.",
    ),
    (
        "_static/explore_collapse.png",
        "Map of the regimes of a deep transformer, with sliders",
        "explore/collapse.md",
        "Explore: will tokens collapse?",
        "Four sliders, and where a deep transformer cannot learn.",
    ),
    (
        "_static/explore_paths.png",
        "Order parameter of attention paths, with a slider",
        "explore/paths.md",
        "Explore: which paths are combined?",
        "One slider, and how width changes what a network computes.",
    ),
    (
        "pictures/toy_induction.png",
        "Attention map of an induction head",
        "models.md",
        "Look inside a network",
        "Find, ablate and patch an induction head in five minutes.",
    ),
    (
        "pictures/retrieval.png",
        "Accuracy of frozen and random attention in retrieval",
        "findings.md",
        "Five findings",
        "What five papers claim, and what our runs show.",
    ),
    (
        "pictures/last_layer.png",
        "Probabilities of the right token with and without layers",
        "gallery.md",
        "Gallery",
        "All recorded figures with their commands.",
    ),
)
# {explorer: (the name of the record with its measured points, the function that draws it)}
EXPLORERS = {
    "phase": ("two_failure_modes/fig1_trainability", explore.phase_diagram),
    "order": ("attention_paths/order_parameter", explore.order_parameter),
}
# The sidebar, at most 25 links. The pages below one of these unfold where it is open.
CONTENTS = {
    "Begin": ["tutorial", "words"],
    "Explore": ["explore/collapse", "explore/paths", "gallery"],
    "How to": [
        "anatomy",
        "own",
        "recipes",
        "running",
        "devices",
        "data",
        "models",
        "laboratory",
        "adding",
    ],
    "Theory": ["signal"],
    "Papers": [*(f"papers/{key}" for key in PAPERS), "findings", "verdicts", "notes/index"],
    "Reference": ["api", "reference/commands"],
}
# {page: the pages below it}
BELOW = {
    "tutorial": [f"notebooks/{name}" for name in NOTEBOOKS],
    "anatomy": ["atlas"],
    "adding": ["architecture", "other_papers"],
    "models": ["circuits"],
    "signal": ["sde", "mixit", "associations", "attention_paths"],
    **{f"papers/{key}": [f"results/{key}"] for key in PAPERS},
    "verdicts": ["ladders", "stats", "flags", "derivations", "coverage"],
    "notes/index": [
        "notes/chance_levels",
        "notes/rank_collapse",
        "notes/positions",
        "notes/speed",
        "notes/early_attention",
        "notes/overlap_exponent",
    ],
    "reference/commands": [
        "reference/configs",
        "reference/fields",
        "reference/tasks",
        "reference/models",
    ],
}


def complete(name: str, text: str) -> str:
    """Returns a page with its generated parts and without links to files outside the site."""
    if name == "index":
        text = text.replace("<!-- contents -->", contents())
        text = text.replace("<!-- first -->", first_lines())
        text = text.replace("<!-- cards -->", cards())
        text = text.replace("<!-- findings -->", findings())
    if below := BELOW.get(name):
        text += f"\n\n{hidden_contents(below)}"
    if name == "gallery":
        text = text.replace("<!-- gallery -->", site_figures.gallery())
    if "<!-- figures -->" in text:
        wall = site_figures.wall(Path(name).name, "../")
        text = text.replace("<!-- figures -->", site_figures.raw(wall))
    if name.startswith("results/"):
        paper = Path(name).name
        text = THUMBNAIL.sub(lambda found: _thumbnail(paper, found[1]), text)
    if name == "findings" or name.startswith("results/"):
        text = VERDICT.sub(lambda found: verdict_chip(found[1]), text)
    if name.startswith("explore/"):
        text = re.sub("<!-- explorer: (\\w+) -->", lambda found: explorer(found[1]), text)
    return LINK.sub(lambda link: _inside(link, ROOT / "docs" / name), text)


def _thumbnail(paper: str, item: str) -> str:
    return site_figures.raw(thumbnail(site_rows.rows()[paper, item]))


def _inside(link: re.Match, page: Path) -> str:
    """Returns the link if it leads to a page or a picture, else its text with the file's name."""
    is_picture, text, file = link[1], link[2], link[3]
    target = (page.parent / file).resolve()
    if is_picture or not target.exists() or target.is_relative_to(ROOT / "docs"):
        return link[0]
    name = str(target.relative_to(ROOT))
    return f"`{name}`" if text.strip("`") == name else f"{text} (`{name}`)"


def cards() -> str:
    """Returns the grid of cards of the first page."""
    parts = []
    for picture, alt, page, title, text in CARDS:
        parts.append(
            f":::{{container}} card\n[![{alt}]({picture})]({page})\n\n[{title}]({page})\n\n"
            f"{text}\n:::"
        )
    return "::::{container} cards\n" + "\n".join(parts) + "\n::::"


def explorer(kind: str) -> str:
    """Returns the charts, their data and their scripts as a block of HTML."""
    config, draw = EXPLORERS[kind]
    (file,) = (ROOT / "results" / config).glob("*.json")
    record = Record.from_json(json.loads(file.read_text()), table=file.with_suffix(".csv"))
    folder = Path(explore.__file__).parent
    scripts = [f"<script>{(folder / name).read_text()}</script>" for name in explore.SCRIPTS]
    html = "\n".join([*draw(record), *scripts])
    # The headings of the charts are one level below the title of the page.
    return site_figures.raw(
        f'<div class="explorer">\n{html}\n</div>'.replace("<h3", "<h2").replace("</h3", "</h2")
    )


def contents() -> str:
    """Returns a table of contents for each group; `BELOW` has the others."""
    return "\n".join(hidden_contents(names, group) for group, names in CONTENTS.items() if names)


def hidden_contents(names: list[str], caption: str = "") -> str:
    """Returns a table of contents that only the sidebar shows."""
    title = f":caption: {caption}\n" if caption else ""
    listed = "\n".join(f"/{name}" for name in names)
    return f"```{{toctree}}\n:hidden:\n{title}\n{listed}\n```\n"


def first_lines() -> str:
    """Returns how to install, and the first block of Python with its output, of the README."""
    text = (ROOT / "README.md").read_text()
    start = text.index("Linux or macOS")
    install = text[start : text.index("Train a transformer whose")]
    block = text[text.index("Train a transformer whose") : text.index("| I want to know")]
    return (install + block).replace("](docs/", "](")


def findings() -> str:
    """Returns the findings of the README, with links relative to the index page.

    A link to another section of the README becomes the name of the file.
    """
    text = (ROOT / "README.md").read_text()
    text = text[text.index("## Five findings") : text.index("## Run an experiment")]
    text = WITHIN.sub(r"\1 (`README.md`)", text)
    return text.replace("](results/", "](../results/").replace("](docs/", "](")
