"""The verdict that pages print first, and the kind of each "did not hold"."""

from collections import Counter

import pytest

from experiments.ledger import headline, summary
from experiments.ledger.confirmed import NOT_YET_RUN, RECOMPUTED, Confirmed
from experiments.ledger.item import OURS
from experiments.ledger.rules import HELD, NOT_HELD, OPEN
from experiments.papers import PAPERS
from experiments.papers.failures import FAILURES, with_failures
from tests.experiments import made_up


def test_every_verdict_that_did_not_hold_has_its_kind(published_rows):
    failed = [row for row in published_rows if NOT_HELD in (row.verdict, headline.verdict(row))]
    without = [
        row.item.name for row in failed if not row.item.failure and OURS not in row.item.flags
    ]
    assert len(failed) > 45 and without == []
    printed = [row for row in failed if headline.verdict(row) == NOT_HELD]
    assert all(headline.kind(row) in headline.KINDS for row in printed)


def test_one_claim_fails_as_stated_and_two_in_a_proof_or_a_side_remark(published_rows):
    claims = summary.distinct_claims(published_rows)
    by_kind = {
        kind: {row.item.name for row in claims if headline.kind(row) == kind}
        for kind in (*headline.AS_STATED, headline.READING)
    }
    assert by_kind == {
        headline.CONTRADICTION: {"Theorem 2"},
        headline.REMARK: {"Theorem 5.1", "Appendix G.1"},
        headline.READING: {"Section 3.1, samples"},
    }


def test_the_line_of_the_readme_counts_redrawn_claims_apart(published_rows):
    line = summary.in_one_line(published_rows)
    judged = [r for r in summary.distinct_claims(published_rows) if headline.confirmation(r)]
    redrawn = [row for row in judged if headline.is_redrawn(row)]
    assert not any(headline.fresh(row) == RECOMPUTED for row in redrawn)
    assert f"Of {len(redrawn)} claims with new seeds or samples" in line
    assert f"Of {len(judged) - len(redrawn)} whose numbers are constants or a single" in line
    for number, words in (("1", "fails as stated (in a proof or a side remark)"), ("1", "has a")):
        assert f"{number} {words}" in line


def test_a_failed_detail_is_not_a_failed_claim(published_rows):
    (row,) = (r for r in published_rows if r.item.name == "Figure 7, the paper's sizes")
    assert headline.verdict(row) == NOT_HELD and headline.primary_verdict(row) == HELD
    assert headline.failure(row).startswith("main point held, a detail did not; smaller size")


def test_an_unknown_row_has_no_kind(monkeypatch):
    monkeypatch.setitem(FAILURES, "mixit", {headline.MISPRINT: ("Table 99",)})
    with pytest.raises(KeyError, match="mixit has no item Table 99"):
        with_failures(PAPERS["mixit"])


def confirmed(row, outcome="reversed", verdict=NOT_HELD, fresh="5 new seeds"):
    """Returns a row that held at first, with this confirmation."""
    primary = row.item.primary_rule
    made = Confirmed(
        "made_up",
        row.item.name,
        outcome,
        exploratory=HELD,
        verdict=verdict,
        seeds=5,
        primary=primary,
        primary_verdict=verdict,
        primary_q=None,
        rules={primary: (verdict, "0.2 ± 0.1 against 0.9")},
        fresh=fresh,
    )
    return row._replace(confirmed=made)


def test_the_fresh_verdict_comes_first_and_the_explored_one_is_its_footnote(rows):
    (row,) = (row for row in rows if row.item.name == "Table 1")
    assert headline.note(row) == "explored only" and headline.verdict(row) == HELD
    new = confirmed(row)
    assert headline.verdict(new) == NOT_HELD
    assert headline.note(new) == "5 new seeds; first runs: held"
    assert headline.decisive_numbers(new) == ("A is right", "0.2 ± 0.1 against 0.9")
    waiting = confirmed(row, outcome=NOT_YET_RUN)
    assert headline.verdict(waiting) == HELD and headline.note(waiting) == "explored only"
    same = confirmed(row, outcome="confirmed", verdict=HELD)
    assert headline.note(same) == "5 new seeds"


def test_a_recomputed_constant_is_called_so(rows):
    (row,) = (row for row in rows if row.item.name == "Table 1")
    constant = confirmed(row, outcome="confirmed", verdict=HELD, fresh=RECOMPUTED)
    assert headline.outcome(constant) == "recomputed"
    assert headline.note(constant) == RECOMPUTED
    assert not constant.confirmed.has_fresh_error
    assert "(1 are constants, recomputed.)" in summary.verdict_counts([constant])


def test_the_counts_are_of_fresh_runs_first(published_rows):
    claims = summary.distinct_claims(published_rows)
    fresh = [row for row in claims if headline.confirmation(row)]
    counts = Counter(map(headline.verdict, fresh))
    assert f"of {len(fresh)} claims {counts[HELD]} held, {counts[NOT_HELD]} did not hold and " in (
        summary.verdict_counts(published_rows)
    )
    assert counts[HELD] + counts[NOT_HELD] + counts[OPEN] == len(fresh)
    assert made_up.PAPER.key not in {row.paper.key for row in fresh}
