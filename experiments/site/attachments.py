"""Attachments of a page: files behind its save buttons, and links to configs and records.

The files are one compressed block, which page.js unpacks. If pyproject.toml has the address of the
repository, links lead there. Otherwise a page in the repository has relative links, and other pages
have no links, so that they do not reveal paths of the machine.
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

from experiments.cli.flags import IS_CLONE, ROOT
from experiments.ledger import tables
from experiments.ledger.record import Record

# Names in project.urls of pyproject.toml. The first one that exists has the repository's address.
URL_NAMES = ("repository", "source")
ARXIV = re.compile(r"arXiv (\d{4}\.\d{4,5})")
CONFIG = re.compile(r"configs/(?:\w+/)*\w+\.py", re.ASCII)


class Attachments:
    """The files and links of one page, which will lie in `folder`."""

    def __init__(self, folder: Path | None = None):
        self.folder = folder.absolute() if folder else None
        self.files: dict[str, str] = {}

    def save(self, name: str, text: str) -> str:
        """Adds a file; returns its save button, which page.js shows."""
        self.files[name] = text
        label = {"csv": "CSV", "tex": "LaTeX"}[name.rpartition(".")[2]]
        file = escape(name)
        return f'<button class="save" data-file="{file}" hidden>{label}</button>'

    def packed(self) -> str:
        """Returns the compressed block of all files. No base64 text can end a script element."""
        block = gzip.compress(json.dumps(self.files).encode(), mtime=0)
        text = base64.b64encode(block).decode()
        return f'<script type="text/plain" id="files">{text}</script>'

    def record(self, record: Record) -> str:
        """A record's name, linked to its file or run folder.

        The link leads to the newest commit, because a record is committed after its run.
        """
        return self._link(record.where, record.where, "HEAD")

    def config(self, record: Record) -> str:
        """Returns a config with its arguments; only files of configs/ are linked."""
        file = record.config_file.partition(":")[0]
        target = file if CONFIG.fullmatch(file) else ""
        return self._link(target, record.config_file, tables.commit(record))

    def commit(self, record: Record) -> str:
        """Returns a commit, linked if the repository has an address."""
        html = f"<code>{escape(tables.commit(record))}</code>"
        commit = record.environment.get("commit") or ""
        if not repository() or not re.fullmatch(r"[0-9a-f]{40}", commit):
            return html
        return f'<a href="{escape(repository())}/commit/{commit}">{html}</a>'

    def _link(self, path: str, text: str, commit: str) -> str:
        """Returns a text, linked to the file at `path` if a reader of the page can reach it."""
        html, href = f"<code>{escape(text)}</code>", ""
        target = ROOT / path
        if path and repository() and not Path(path).is_absolute():
            revision = commit if re.fullmatch(r"[0-9a-f]{7}", commit) else "HEAD"
            href = f"{repository()}/blob/{revision}/{quote(path)}"
        elif path and self.folder and target.exists():
            # Page and file must both be in the repository, or the file in the page's folder.
            bases = (ROOT, self.folder)
            if any(target.is_relative_to(b) and self.folder.is_relative_to(b) for b in bases):
                href = quote(Path(os.path.relpath(target, self.folder)).as_posix())
        return f'<a href="{escape(href)}">{html}</a>' if href else html


def with_papers(text: str) -> str:
    """Returns escaped text with links for arXiv numbers."""
    return ARXIV.sub(r'<a href="https://arxiv.org/abs/\1">arXiv \1</a>', escape(text))


@functools.cache
def repository() -> str:
    """Returns the address of the repository in pyproject.toml; "" if there is none."""
    if not IS_CLONE:
        return ""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    urls = {name.lower(): url.rstrip("/") for name, url in project.get("urls", {}).items()}
    links = (urls[name] for name in URL_NAMES if name in urls)
    return next((url for url in links if url.startswith("https://")), "")
