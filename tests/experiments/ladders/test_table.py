"""Sentences and tables about ladders."""

from dataclasses import replace

from experiments.ladders import judgement, plan, table
from experiments.ladders.controlled import Control
from experiments.ladders.judgement import Measured
from experiments.ledger.ladder import over
from experiments.site import ladders_shown as shown
from jaxformer.stats.trend import Estimate
from tests.experiments.ladders.small import LADDER, SIZES, measured


def test_the_line_of_a_row_goes_over_the_sizes_that_count(tmp_path, monkeypatch):
    ladder = replace(LADDER, rungs=over({2: 1} | dict.fromkeys(SIZES, 1)))
    sizes = measured(ladder, (0.01, 0.2, 0.3, 0.4))
    too_hard = sizes[0]._replace(problem="standard reaches 0.32, so the task is not solved")
    made = plan.make("test", [ladder])
    plan.write(made, tmp_path / "PLAN.json")
    monkeypatch.setattr(shown, "LADDERS", {"pairs": ladder})

    def sentence(*measured):
        found = judgement.judge(ladder, measured)
        pair = found, Control()
        monkeypatch.setattr(shown.runs, "judge_with_controls", lambda *_: [pair])
        ((trend,),) = shown.trends(tmp_path).values()
        return trend.sentence

    assert sentence(too_hard, *sizes[1:]).startswith(
        "With size: from 4 to 16 (M, pairs) the Standard minus MixiT goes from 0.2 to 0.4, so "
    )
    flat = [size._replace(number=sizes[1].number, value=sizes[1].value) for size in sizes[1:]]
    assert ', which leaves "grows" open (' in sentence(too_hard, *flat)
    # Two sizes have no trend.
    without_score = sizes[1]._replace(problem="mixit: seed 3 diverged", core_seconds=9.0)
    assert sentence(too_hard._replace(core_seconds=9.0), without_score, *sizes[2:]) == ""


def test_a_paper_below_the_smallest_size_is_an_extrapolation_too():
    ladder = replace(LADDER, paper_size=1)
    found = judgement.judge(ladder, measured(ladder, (0.1, 0.2, 0.3)))
    assert ", an extrapolation by a factor of 4;" in table.sentence(found)
    inside = replace(LADDER, paper_size=6)
    found = judgement.judge(inside, measured(inside, (0.1, 0.2, 0.3)))
    assert "extrapolation" not in table.sentence(found)


def test_estimates_have_the_digits_of_their_interval():
    assert table.short(Estimate(0.0234, -0.000645, 0.0474)) == "0.023 (-0.001 to 0.047)"
    assert table.short(Estimate(-0.00001, -0.2, 0.2)) == "0.00 (-0.20 to 0.20)"
    assert table.short(Estimate(12.3, -40.0, 64.0)) == "12 (-40 to 64)"
    assert table.short(Estimate(0.5, 0.5, 0.5)) == "0.50000 (0.50000 to 0.50000)"
    assert table.short(None) == "-"


def test_ladders_with_a_verdict_come_first():
    sizes = measured(LADDER, (0.1, 0.2, 0.3))
    waiting = [Measured(rung) for rung in LADDER.rungs]
    none, some, done = (
        (judgement.judge(LADDER, runs), Control())
        for runs in (waiting, [sizes[0], *waiting[1:]], sizes)
    )
    assert table.by_progress([none, some, done]) == [done, some, none]
