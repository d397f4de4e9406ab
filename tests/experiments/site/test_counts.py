"""The number of rows that hold, on the page and in README."""

import re

from experiments.ledger import summary
from experiments.ledger.item import EASY, OURS, OUTSIDE
from experiments.site import overview, results_pages
from tests.experiments import made_up


def test_questions_beyond_the_papers_are_not_counted_with_the_claims(rows):
    own_questions = [
        row._replace(item=row.item._replace(flags=(OURS,))) if row.item.name == "Table 4" else row
        for row in rows
    ]
    lead = summary.lead(own_questions, "made_up")
    assert "Held: Table 1;" in lead and lead.endswith("Our own questions: Table 4 (held).")
    assert "Table 4" not in lead.partition("Our own")[0]
    for these, n in ((rows, len(rows)), (own_questions, len(rows) - 1)):
        in_readme = results_pages.counts(these, "")[-1].partition(")")[2]
        on_the_page = overview.overview(these, {"made_up": made_up.PAPER})[2]
        assert sum(map(int, re.findall(r"\d+", in_readme))) == n
        assert sum(map(int, re.findall(r"<td[^>]*>(\d+)<", on_the_page))) == n


def test_rows_that_repeat_a_claim_or_are_outside_it_are_not_counted(rows):
    changes = ({"repeats": "Table 1"}, {"flags": (OUTSIDE,)}, {"flags": (EASY,)})
    for change in changes:
        changed = [
            row._replace(item=row.item._replace(**change)) if row.item.name == "Table 4" else row
            for row in rows
        ]
        assert len(summary.distinct_claims(changed)) == len(rows) - 1, change
        assert "Not counted: Table 4 (held)." in summary.lead(changed, "made_up")
        assert summary.not_counted(changed).startswith(" Rows that are not counted: 1 ")
    assert summary.verdict_counts(changed) != summary.verdict_counts(rows)
