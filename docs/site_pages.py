"""Completes the pages of the site: findings, contents, and links that stay on the site."""

import re
from pathlib import Path

from experiments.papers import PAPERS

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(!?)\[([^\]]+)\]\(([\w./-]+)(?:#[\w-]+)?\)")
WITHIN = re.compile(r"\[([^\]]+)\]\(#[\w-]+\)")  # a link to a heading of the same page
CONTENTS = {
    "Begin": ["tutorial", "words"],
    "How to": ["anatomy", "running", "devices", "data", "models", "laboratory", "adding"],
    "Theory": ["signal", "sde", "mixit", "associations", "attention_paths"],
    "Papers": [f"papers/{key}" for key in PAPERS],
    "Results": [f"results/{key}" for key in PAPERS] + ["verdicts", "coverage"],
    "Notes to the authors": [
        f"notes/{name}"
        for name in (
            *("index", "chance_levels", "rank_collapse", "positions"),
            *("early_attention", "overlap_exponent"),
        )
    ],
    "Reference": [
        "api",
        *(f"reference/{n}" for n in ("tasks", "models", "fields", "configs", "commands")),
    ],
    "Inside": ["architecture"],
}


def complete(name: str, text: str) -> str:
    """Returns a page with its generated parts, in which no link leaves the site."""
    if name == "index":
        text = text.replace("<!-- contents -->", contents())
        text = text.replace("<!-- findings -->", findings())
    return LINK.sub(lambda link: _inside(link, ROOT / "docs" / name), text)


def _inside(link: re.Match, page: Path) -> str:
    """Returns the link if it leads to a page or a picture, else the name of its file."""
    is_picture, words, file = link[1], link[2], link[3]
    target = (page.parent / file).resolve()
    if is_picture or not target.exists() or target.is_relative_to(ROOT / "docs"):
        return link[0]
    named = str(target.relative_to(ROOT))
    return f"`{named}`" if words.strip("`") == named else f"{words} (`{named}`)"


def contents() -> str:
    """Returns a table of contents for each group; pages without a group come last."""
    known = [name for names in CONTENTS.values() for name in names]
    files = sorted((ROOT / "docs").rglob("*.md"))
    others = [str(f.relative_to(ROOT / "docs").with_suffix("")) for f in files]
    others = [name for name in others if name not in (*known, "index")]
    blocks = []
    for group, names in (CONTENTS | {"More": others}).items():
        if names:
            listed = "\n".join(names)
            blocks += [f"```{{toctree}}\n:hidden:\n:caption: {group}\n\n{listed}\n```\n"]
    return "\n".join(blocks)


def findings() -> str:
    """Returns the findings of the README, with links relative to the index page.

    A link to another section of the README becomes the name of the file.
    """
    text = (ROOT / "README.md").read_text()
    text = text[text.index("## Five findings") : text.index("## Run an experiment")]
    text = WITHIN.sub(r"\1 (`README.md`)", text)
    return text.replace("](results/", "](../results/").replace("](docs/", "](")
