"""The pages name what exists; the walks of docs/adding.md have tests of their own."""

import re

import pytest

from experiments.shared import flags

PAGES = {file.name: file.read_text() for file in (flags.ROOT / "docs").glob("*.md")}
PAGES |= {name: (flags.ROOT / name).read_text() for name in ("README.md", "CONTRIBUTING.md")}
ADDED = ("configs/mixit/successor.py", "configs/mixit/mixing_rows.py", "configs/mixit/count.py")


@pytest.mark.parametrize("page", PAGES)
def test_the_configs_that_a_page_names_exist(page):
    for name in set(re.findall(r"configs/\w+/\w+\.py", PAGES[page])):
        assert (flags.ROOT / name).exists() or name in ADDED, name


@pytest.mark.parametrize("page", PAGES)
def test_the_files_that_a_page_links_to_exist(page):
    top = page in ("README.md", "CONTRIBUTING.md")
    folder = flags.ROOT if top else flags.ROOT / "docs"
    for link in re.findall(r"\]\(([\w/.]+)[#)]", PAGES[page]):
        assert (folder / link).exists(), link
    for link in re.findall(r"`(docs/\w+\.md)`", PAGES[page]):
        assert (flags.ROOT / link).exists(), link
