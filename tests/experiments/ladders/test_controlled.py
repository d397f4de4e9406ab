"""A second look at the records of a ladder: which of its verdicts rest on untrained networks?"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.ladders import controlled, judgement, table
from experiments.ladders.controlled import Control
from experiments.ledger.ladder_rule import Trend
from experiments.ledger.rules import HELD, NOT_HELD
from jaxformer.stats import trend
from jaxformer.stats.differences import Number
from tests.experiments.ladders.small import JITTER, LADDER, SIZES, measured

RATES = (1e-3, 3e-3, 1e-2)
GUESS = 0.2
NOISE = (3 * JITTER[[1, 4, 0, 2, 3]]).tolist()


def record(scores, chosen=3e-3, rates=RATES, steps=6000, reached=None):
    """A record of a training on an accuracy, which other rates lower."""
    members = [
        {
            "seed": seed,
            "learning_rate": rate,
            "chosen": rate == chosen,
            "diverged_at": None,
            "reached_at": reached,
            "metrics": {"accuracy": {"mean": x - 0.05 * (rate != chosen), "sem": 1e-3, "n": 1000}},
        }
        for rate in rates
        for seed, x in enumerate(scores)
    ]
    mean, sem = float(np.mean(scores)), float(np.std(scores, ddof=1) / len(scores) ** 0.5)
    return SimpleNamespace(
        config={"train": {"steps": 6000}},
        members=members,
        metrics={"accuracy": {"mean": mean, "sem": sem, "n": len(scores)}},
        baselines={"guess": GUESS},
        steps=steps,
    )


def look(mixit_of_size, standard=0.98, ladder=LADDER, **more):
    """The verdict by the rule, and the control, of a ladder with these accuracies of MixiT."""
    records, sizes = {}, []
    best = [standard + x for x in JITTER.tolist()] if isinstance(standard, float) else standard
    for rung in ladder.rungs:
        scores = mixit_of_size(rung.size)
        scores = [scores + x for x in NOISE] if isinstance(scores, float) else scores
        records[rung.size] = {"standard": [record(best)], "mixit": [record(scores, **more)]}
        by_seed = dict(enumerate(x - y for x, y in zip(best, scores, strict=True)))
        values = [*by_seed.values()]
        number = Number(
            float(np.mean(values)), float(np.std(values, ddof=1) / 5**0.5), 5, by_seed=by_seed
        )
        sizes.append(judgement.Measured(rung, number, trend.estimate([number], [1.0])))
    judged = judgement.judge(ladder, sizes)
    return judged, controlled.control(ladder, judged, records)


def falling(size):
    """Accuracies of MixiT that fall with the size."""
    return 0.8 - 0.1 * float(np.log2(size))


@pytest.mark.parametrize(
    "more, word, reason",
    [
        (dict(rates=(3e-3,)), "not trained at this size", "one learning rate tried"),
        (dict(chosen=1e-3), "not trained at this size", "its best rate 0.001 is the lowest"),
        ({}, "cannot tell whether it ended", "no run of twice the steps"),
    ],
    ids=["dead rate", "edge", "stopped early"],
)
def test_a_loser_that_was_not_trained_takes_the_verdict_away(more, word, reason):
    judged, found = look(falling, **more)
    assert judged.verdict == HELD and found.verdict(judged.verdict) == word
    assert set(found.untrained) == {*SIZES}
    assert all(reason in text for text in found.untrained.values())
    lines = table.control_lines(judged, found)
    assert f"By its rule alone the verdict was: {HELD}." in lines
    row = dict(zip(table.COLUMNS, table.row(judged, found), strict=True))
    assert row["per doubling"] == row["predicted at the paper's size"] == "-"


def test_a_network_that_loses_nothing_needs_no_training_of_its_own():
    ladder = replace(LADDER, rule=Trend("stays below", 0.05))
    judged, found = look(lambda size: 0.98, ladder=ladder, rates=(3e-3,))
    assert judged.verdict == HELD == found.verdict(judged.verdict) and not found.untrained


def test_two_networks_at_a_ceiling_have_no_trend():
    ladder = replace(LADDER, rule=Trend("stays below", 0.05))
    same = [0.9990, 0.9991, 0.9992, 0.9993, 0.9994]
    other = [x - 0.001 * (1 + i % 2) for i, x in enumerate(same)]
    judged, found = look(lambda size: other, standard=same, ladder=ladder, rates=(3e-3,))
    assert found.verdict(judged.verdict) == HELD and not found.untrained
    assert found.at_ceiling == SIZES and not found.has_slope
    assert "both networks solve the task at 4, 8, 16" in table.sentence(judged, found)


def test_seeds_in_two_modes_are_counted():
    two = [0.99, 0.3, 0.98, 0.25, 0.99]
    _, found = look(falling, standard=two)
    assert found.modes == dict.fromkeys(SIZES, "standard: 3 of 5 seeds solve it")


def test_a_network_that_solves_the_task_has_ended():
    judged, found = look(lambda size: 0.97 - 0.01 * float(np.log2(size)))
    assert judged.verdict == HELD == found.verdict(judged.verdict) and not found.untrained


def test_a_bent_trend_has_no_change_per_doubling():
    bent = measured(LADDER, (0.1, 0.15, 0.6))
    assert controlled.bends(bent) and not controlled.bends(measured(LADDER, (0.1, 0.2, 0.3)))
    judged = judgement.judge(LADDER, bent)
    assert table.row(judged, Control(is_bent=True))[3] == "-"


def test_rules_are_corrected_for_their_number():
    """One p value of .04 among twenty is expected; alone it decides."""
    weak = Control(p=0.04)
    alone = controlled.corrected({"one": weak})["one"]
    assert alone.verdict(NOT_HELD) == NOT_HELD
    among = {f"{i}": Control(p=0.5) for i in range(19)} | {"one": weak}
    assert controlled.corrected(among)["one"].verdict(NOT_HELD).startswith("cannot tell yet")


def test_the_p_value_of_a_verdict_is_that_of_its_interval():
    """At the border of the interval it is .05."""
    judged = judgement.judge(LADDER, measured(LADDER, (0.1, 0.2, 0.3)))
    slope = trend.Estimate(0.1, 0.0, 0.2)
    assert controlled.p_of_verdict(judged._replace(slope=slope)) == pytest.approx(0.05, abs=1e-6)


def test_a_ladder_that_asks_something_else_than_the_paper_is_withdrawn():
    ladder = replace(LADDER, name="addition-digits-mixit")
    judged, found = look(falling, ladder=ladder)
    assert table.verdict(judged, found) == "withdrawn"
    assert "Table 5 prints 34.7 %" in "".join(table.control_lines(judged, found))
