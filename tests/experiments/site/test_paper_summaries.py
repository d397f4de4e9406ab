"""A paper's page says what did not hold and why, and to whom to object."""

import re

import pytest

from experiments.cli.flags import ROOT
from experiments.ledger import headline
from experiments.papers import PAPERS
from experiments.site import paper_summaries
from jaxformer.core.errors import UserError
from tests.experiments import made_up

PAGE = "before\n<!-- verdicts -->\nold\n<!-- /verdicts -->\nafter\n"


def test_each_claim_that_did_not_hold_has_its_reason(published_rows):
    for key in PAPERS:
        rows = [row for row in published_rows if row.paper.key == key]
        lines = re.findall(r"^- .*", paper_summaries.with_verdicts(PAGE, rows), re.M)
        failed = [
            row for row in rows if headline.verdict(row) == "did not hold" and row.item.is_counted
        ]
        assert len(lines) == len(failed)
        for line, row in zip(lines, failed):
            assert f"[{row.item.name}](" in line
            assert f"({headline.failure(row)})" in line and "We measured " in line


def test_the_text_around_the_verdicts_stays(rows):
    made = paper_summaries.with_verdicts(PAGE, [r for r in rows if r.paper == made_up.PAPER])
    assert made.startswith("before\n<!-- verdicts -->\n") and "\nold\n" not in made
    assert made.endswith("<!-- /verdicts -->\nafter\n")
    assert "did not hold**" in made and "#if-you-disagree" in made


def test_a_page_that_lost_its_marks_is_a_one_line_error(rows):
    with pytest.raises(UserError, match="lost its block <!-- verdicts -->"):
        paper_summaries.with_verdicts("before", rows)


def test_every_note_stands_on_the_page_of_its_paper():
    files = {file.stem for file in (ROOT / "docs/notes").glob("*.md")} - {"index"}
    linked = [file for notes in paper_summaries.NOTES.values() for _, file in notes]
    assert sorted(linked) == sorted(files)
