"""What the site adds to the pages: the findings, the ledger of a paper, links that stay inside."""

import re
from pathlib import Path

from experiments.cli import flags
from experiments.ledger.item import Item
from experiments.papers import PAPERS

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(!?)\[([^\]]+)\]\(([\w./-]+)(?:#[\w-]+)?\)")
WITHIN = re.compile(r"\[([^\]]+)\]\(#[\w-]+\)")  # a link to a heading of the same page
CONTENTS = {
    "Begin": ["tutorial", "words"],
    "How to": ["running", "devices", "data", "models", "laboratory", "adding"],
    "Theory": ["signal", "sde", "mixit", "associations", "attention_paths"],
    "Papers": [f"papers/{key}" for key in PAPERS] + ["verdicts"],
    "Reference": [
        "api",
        *(f"reference/{n}" for n in ("tasks", "models", "fields", "configs", "commands")),
    ],
    "Inside": ["architecture"],
}


def complete(name: str, text: str) -> str:
    """A page with what its comments ask for, and no link that leaves the site."""
    if name == "index":
        text = text.replace("<!-- contents -->", contents())
        text = text.replace("<!-- findings -->", findings())
    for key in re.findall(r"<!-- ledger (\w+) -->", text):
        text = text.replace(f"<!-- ledger {key} -->", ledger(key))
    text = re.sub(r"\]\((?:\.\./)+RESULTS\.md#([\w-]+)\)", _to_paper, text)
    return LINK.sub(lambda link: _inside(link, ROOT / "docs" / name), text)


def _inside(link: re.Match, page: Path) -> str:
    """A link as it is, if it leads to a page or a picture; else the name of the file."""
    is_picture, words, file = link[1], link[2], link[3]
    target = (page.parent / file).resolve()
    if is_picture or not target.exists() or target.is_relative_to(ROOT / "docs"):
        return link[0]
    named = str(target.relative_to(ROOT))
    return f"`{named}`" if words.strip("`") == named else f"{words} (`{named}`)"


def _to_paper(link: re.Match) -> str:
    """The page of the paper that a row of the ledger belongs to."""
    (key,) = (k for k in PAPERS if f"{link[1]}-".startswith((f"{k}-", f"{k.replace('_', '-')}-")))
    return f"](/papers/{key}.md)"


def contents() -> str:
    """The tables of contents, one for each group; a page that is in none is put into the first."""
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
    """The findings of the README, with links as they are from here.

    The other sections of the README are not on the site: a link to one becomes the file's name.
    """
    text = (ROOT / "README.md").read_text()
    text = text[text.index("## Five findings") : text.index("## Run one")]
    text = WITHIN.sub(r"\1 (`README.md`)", text)
    text = text.replace("](docs/", "](").replace("](results/", "](../results/")
    return text.replace("](RESULTS.md#", "](../RESULTS.md#")


def ledger(key: str) -> str:
    """Every item of a paper: the claim, what our runs say, the verdict, and how to run it."""
    rows, lines = _rows(key), []
    for item in PAPERS[key].items:
        claim, ours, verdict, scale, caveat = rows[item.name]
        lines += [f"### {item.name}: {verdict.strip('*')}", "", f"*The paper:* {claim}", ""]
        lines += [f"- {said}" for said in ours.split("<br>") if said != "-"]
        lines += ["", f"*Scale:* {scale}. {caveat}".replace("*Scale:* -. ", ""), ""]
        lines += [f"`{command}`<br>" for command in commands(item)] + [""]
    return "\n".join(lines)


def commands(item: Item) -> list[str]:
    """The lines that run its cells, at scale small where they have it; of many the first ones."""
    lines = []
    for cell in item.cells.values():
        scale = "small" if "small" in cell.scales else cell.scales[0]
        config = f"{cell.config}{',' if ':' in cell.config else ':'}scale={scale}"
        lines.append(flags.command(config, cell.overrides))
    return [*lines[:3], *([f"and {len(lines) - 3} more"] if len(lines) > 3 else [])]


def _rows(key: str) -> dict[str, tuple[str, ...]]:
    """{item: the cells of its row in RESULTS.md}"""
    text = (ROOT / "RESULTS.md").read_text()
    section = text[text.index(f'<a id="{key}"></a>') :].partition("\n### ")[0]
    found = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 7 and "---" not in cells[0]:
            name = cells[0].rpartition("</a>")[2].partition("<br>")[0]
            found[name] = tuple(cells[1:6])
    return found
