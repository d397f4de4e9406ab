"""What a page carries beside its text: files that it saves when asked, and links out of it.

The files are one compressed block, which the page's script unpacks; 300 tables take the room of
ten. The page needs no network, so its links to configs and records are relative, unless
pyproject.toml names a repository. They stand where the page lies within the repository: a file that
is sent to somebody else must not tell where it was made.
"""

import base64
import functools
import gzip
import json
import os
import re
import tomllib
from html import escape
from pathlib import Path
from urllib.parse import quote

from experiments.cli.flags import ROOT
from experiments.ledger import tables
from experiments.ledger.record import Record

HOSTS = ("repository", "source")
ARXIV = re.compile(r"arXiv (\d{4}\.\d{4,5})")
CONFIG = re.compile(r"configs/(?:\w+/)*\w+\.py", re.ASCII)


class Shelf:
    """The files of one page, which will lie in the folder `place`."""

    def __init__(self, place: Path | None = None):
        self.place = place.absolute() if place else None
        self.files: dict[str, str] = {}

    def save(self, name: str, text: str) -> str:
        """A button that saves a text; the script shows it."""
        self.files[name] = text
        word = {"csv": "CSV", "tex": "LaTeX"}[name.rpartition(".")[2]]
        file = escape(name)
        return f'<button class="save" data-file="{file}" hidden>{word}</button>'

    def packed(self) -> str:
        """The block of all files: base64 has no sign that ends a script."""
        block = gzip.compress(json.dumps(self.files).encode(), mtime=0)
        text = base64.b64encode(block).decode()
        return f'<script type="text/plain" id="files">{text}</script>'

    def record(self, record: Record) -> str:
        """A record's name, linked to its file or run folder."""
        return self._link(record.where, record.where, tables.commit(record))

    def config(self, record: Record) -> str:
        """A config with its arguments; only a file of configs/ is linked."""
        file = record.config_file.partition(":")[0]
        target = file if CONFIG.fullmatch(file) else ""
        return self._link(target, record.config_file, tables.commit(record))

    def commit(self, record: Record) -> str:
        """A commit, linked where the repository has an address."""
        words, name = escape(tables.commit(record)), record.environment.get("commit") or ""
        if not repository() or not re.fullmatch(r"[0-9a-f]{40}", name):
            return f"<code>{words}</code>"
        return f'<a href="{escape(repository())}/commit/{name}"><code>{words}</code></a>'

    def _link(self, path: str, words: str, commit: str) -> str:
        shown, href = f"<code>{escape(words)}</code>", ""
        target = ROOT / path
        if path and repository() and not Path(path).is_absolute():
            known = commit if re.fullmatch(r"[0-9a-f]{7}", commit) else "HEAD"
            href = f"{repository()}/blob/{known}/{quote(path)}"
        elif path and self.place and target.exists():
            homes = (ROOT, self.place)
            if any(target.is_relative_to(h) and self.place.is_relative_to(h) for h in homes):
                href = quote(Path(os.path.relpath(target, self.place)).as_posix())
        return f'<a href="{escape(href)}">{shown}</a>' if href else shown


def with_papers(text: str) -> str:
    """Escaped text whose arXiv numbers are links."""
    return ARXIV.sub(r'<a href="https://arxiv.org/abs/\1">arXiv \1</a>', escape(text))


@functools.cache
def repository() -> str:
    """The address of the repository in pyproject.toml, or ""."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    urls = {name.lower(): url.rstrip("/") for name, url in project.get("urls", {}).items()}
    found = (urls[name] for name in HOSTS if name in urls)
    return next((url for url in found if url.startswith("https://")), "")
