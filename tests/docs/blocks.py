"""The code blocks of the pages, with their language and the comment that states their test.

A comment just above a block says how it is tested; without one it is run as it stands.

    <!-- needs: eight GPUs -->            the tests lack this: the commands are only parsed
    <!-- slow -->                         Python that takes seconds; it runs with the slow tests
    <!-- given: a problem of two paths --> names that given.py defines before the block runs
    <!-- numbers vary -->                 the numbers in the output are not compared, its text is
    <!-- tested: tests/test_adding.py --> another test, in this file, runs the block
"""

import re
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
COMMENT = re.compile(r"<!-- (needs|given|tested): (.+?) -->|<!-- (slow|numbers vary) -->")
LANGUAGES = ("python", "sh", "console", "json", "toml", "text", "bibtex")
COMMAND = re.compile(r"\s*(\$ )?(python|jaxformer|make|pip|source|srun|sbatch|git) ")


class Block(NamedTuple):
    """Lines of code in a page, and the comment on how they are tested."""

    page: str
    line: int
    language: str
    text: str
    comment: dict[str, str]  # {"needs": "eight GPUs"}

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    def commands(self) -> list[str]:
        """Returns the lines for a shell, continued lines joined, without comments."""
        lines = re.sub(r"\\\n\s*", "", self.text).split("\n")
        if self.language == "console":
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        elif self.language != "sh":
            return []
        return [line for line in lines if line.strip() and not line.startswith("#")]


def pages() -> dict[str, str]:
    """Returns {name: text} of the hand-written pages; generated ones have their own tests."""
    files = [ROOT / name for name in ("README.md", "CONTRIBUTING.md")]
    for folder in ("docs", "docs/papers", "docs/notes"):
        files += sorted((ROOT / folder).glob("*.md"))
    return {str(file.relative_to(ROOT)): file.read_text() for file in files}


def of_page(name: str, text: str) -> list[Block]:
    """Returns all blocks of a page, fenced or indented, also those inside lists."""
    result, comment = [], {}
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "html_block":
            comment = {a or c: b or "" for a, b, c in COMMENT.findall(token.content)}
        elif token.type in ("fence", "code_block"):
            line = (token.map or [0])[0] + 1
            language = token.info if token.type == "fence" else "indented"
            result.append(Block(name, line, language, token.content, comment))
            comment = {}
        elif token.type != "list_item_open":
            comment = {}
    return result


def inline(text: str) -> list[str]:
    """Returns the commands in the sentences and tables of a page."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    children = [child for token in tokens for child in token.children or []]
    codes = [child.content for child in children if child.type == "code_inline"]
    return [code for code in codes if COMMAND.match(code)]
