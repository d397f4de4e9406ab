"""All pages of results/ with their figures, in a browser if there is one; takes a minute."""

import re
import subprocess

import pytest

from experiments import report
from experiments.papers import PAPERS
from tests.experiments.site import browser

pytestmark = pytest.mark.slow
MAX_PAGE_BYTES, MAX_PRINTED_PAGES = 3_000_000, 40
WIDTHS = (360, 420, 800, 920, 1000, 1400)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    index = tmp_path_factory.mktemp("page") / "page.html"
    assert report.main([f"--page={index}"]) == 0
    return [index, *(index.with_name(f"page_{key}.html") for key in PAPERS)]


def test_pages_are_small_and_their_links_lead_to_an_anchor(files):
    texts = {file.name: file.read_text() for file in files}
    ids = {name: set(re.findall(r'\bid="([^"]+)"', text)) for name, text in texts.items()}
    wrong = [name for name, text in texts.items() if len(text.encode()) > MAX_PAGE_BYTES]
    for name, text in texts.items():
        for page, anchor in re.findall(r'href="(page\w*\.html)?#([^"]+)"', text):
            if anchor not in ids[page or name]:
                wrong.append(f"{name} links to {page}#{anchor}")
    assert not wrong
    assert sum(text.count('src="data:image/webp') for text in texts.values()) > 40


def test_it_prints_on_few_pages(files, tmp_path):
    args = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'home'}"]
    args += ["--no-pdf-header-footer", f"--print-to-pdf={tmp_path / 'page.pdf'}"]
    command = [browser.find(), *args, files[-1].as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    pages = re.findall(rb"/Type\s*/Page\b(?!s)", (tmp_path / "page.pdf").read_bytes())
    assert 5 < len(pages) < MAX_PRINTED_PAGES


def test_nothing_is_wider_than_the_window(files, tmp_path):
    probe = "return {wide: document.documentElement.scrollWidth - innerWidth};"
    wide = []
    for file in files:
        for width in WIDTHS:
            if browser.ask(file.read_text(), probe, tmp_path, width=width)["wide"] > 0:
                wide.append(f"{file.name} at {width}")
    assert not wide
