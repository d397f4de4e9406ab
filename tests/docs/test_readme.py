"""What README.md says of the findings is what the ledger and the records say."""

import re

import pytest

from experiments.ledger import read
from experiments.ledger.ledger import ledger
from experiments.page import markdown
from experiments.papers import PAPERS
from tests.docs.blocks import ROOT
from tests.test_docs_numbers import is_one_of, numbers_of

TEXT = (ROOT / "README.md").read_text()
FINDINGS = TEXT[TEXT.index("## Five findings") : TEXT.index("## Run one")]
NUMBER = re.compile(r"([-+]?\d*\.\d+)\s+±\s+(\d*\.\d+)")


def test_every_finding_has_a_picture_a_verdict_and_a_command():
    found = FINDINGS.split("\n### ")[1:]
    assert len(found) == 5
    for finding in found:
        assert len(re.findall(r"^!\[[^\]]+\]\([\w/.-]+\.png\)$", finding, re.M)) == 1
        assert markdown.VERDICT.search(finding) and "`python " in finding


def test_a_verdict_is_that_of_its_row():
    """As RESULTS.md has it, which a test of the report compares with the records."""
    results = (ROOT / "RESULTS.md").read_text()
    found = markdown.VERDICT.findall(TEXT)
    assert len(found) >= 5
    for _, name, place, _, verdict in found:
        (row,) = re.findall(
            rf'^\| <a id="{place}"></a>([^|<]*).*\| \*\*([^*]*)\*\* \|', results, re.M
        )
        assert (row[0].strip(), row[1]) == (name, verdict)


def test_a_verdict_that_changes_is_written_again():
    made = markdown.readme(TEXT, ledger(PAPERS, []))
    assert {verdict for *_, verdict in markdown.VERDICT.findall(made)} == {"not run"}
    assert markdown.VERDICT.sub("", made).count("**") == markdown.VERDICT.sub("", TEXT).count("**")


@pytest.fixture(scope="module")
def metrics():
    records, _ = read.load(ROOT / "results")
    return numbers_of(records)


def test_a_number_with_an_error_is_that_of_a_record(metrics):
    found = NUMBER.findall(FINDINGS)
    assert len(found) >= 7
    lost = [pair for pair in found if not is_one_of(metrics, *pair, 1.0)]
    assert not lost and not is_one_of(metrics, ".504", ".018", 1.0)
