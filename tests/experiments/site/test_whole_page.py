"""The whole page of results/ with all its figures, in a browser where there is one: a minute."""

import re
import subprocess
from html import unescape
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest

from experiments import report
from tests.experiments.site import browser

pytestmark = pytest.mark.slow
LARGEST, MOST_PAGES = 3_000_000, 40


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    file = tmp_path_factory.mktemp("page") / "page.html"
    assert report.main([f"--page={file}"]) == 0
    return file


def test_it_is_small_and_half_of_its_figures_are_vectors(whole):
    text = whole.read_text()
    assert len(text.encode()) < LARGEST
    vectors, pixels = (text.count(f'src="data:image/{kind}') for kind in ("svg+xml", "webp"))
    assert vectors > 15 and pixels > 0
    for drawing in re.findall(r'src="data:image/svg\+xml,([^"]*)"', text):
        ElementTree.fromstring(unquote(unescape(drawing)))  # a browser shows nothing else


def test_it_prints_on_few_pages(whole, tmp_path):
    words = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'home'}"]
    words += ["--no-pdf-header-footer", f"--print-to-pdf={tmp_path / 'page.pdf'}", whole.as_uri()]
    subprocess.run([browser.find(), *words], check=True, capture_output=True, timeout=300)
    pages = re.findall(rb"/Type\s*/Page\b(?!s)", (tmp_path / "page.pdf").read_bytes())
    assert 10 < len(pages) < MOST_PAGES


@pytest.mark.parametrize("width", [360, 420, 800, 920, 1000, 1400])
def test_nothing_is_wider_than_the_window(whole, tmp_path, width):
    asked = "return {wide: document.documentElement.scrollWidth - innerWidth};"
    assert browser.ask(whole.read_text(), asked, tmp_path, width=width)["wide"] <= 0
