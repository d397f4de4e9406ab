"""CITATION.cff can be parsed, and its papers have the numbers of the ledger."""

import re

from experiments.cli.flags import ROOT
from experiments.papers import PAPERS
from jaxformer import __version__
from tests.helpers import failures

CITATION = (ROOT / "CITATION.cff").read_text()
ENTRIES = CITATION.split("\n  - type: ")[1:]
NUMBER = re.compile(r"\d{4}\.\d{5}")


def test_the_software_is_this_version():
    assert f"\nversion: {__version__}\n" in CITATION


def test_every_paper_has_authors_and_one_number():
    assert not failures(check_entry, ENTRIES)


def check_entry(entry):
    assert re.search(r"    authors:\n      - ", entry)
    if not entry.startswith("unpublished"):
        (number,) = set(NUMBER.findall(entry))
        assert f"doi: 10.48550/arXiv.{number}" in entry
        assert f"url: https://arxiv.org/abs/{number}" in entry
        assert int(number[:2]) + 2000 <= int(re.search(r"year: (\d+)", entry)[1])


def test_every_paper_of_the_ledger_is_cited_and_has_its_number_on_its_page():
    assert len(ENTRIES) == len(PAPERS)
    for key, paper in PAPERS.items():
        (entry,) = [e for e in ENTRIES if paper.title.lower() in e.lower()]
        page = (ROOT / f"docs/papers/{key}.md").read_text()
        own = {*NUMBER.findall(paper.source)} | {*NUMBER.findall(page)}
        assert own == {*NUMBER.findall(entry)}, key
