"""Which trends a rule accepts, and which ladders may not be built."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.ladders import judgement, table
from experiments.ladders.judgement import Measured
from experiments.ledger.ladder import Ladder, Rung, over
from experiments.ledger.ladder_rule import Trend
from experiments.ledger.rules import HELD, NOT_HELD, OPEN, of
from experiments.papers import PAPERS
from experiments.papers.ladders import LADDERS
from jaxformer.core.errors import UserError
from tests.experiments.ladders.small import CELLS, LADDER, measured


def right_and_wrong(ladder: Ladder) -> tuple[np.ndarray, np.ndarray]:
    """Values that obey a ladder's rule, and values of the opposite trend."""
    logs = np.log2([rung.size for rung in ladder.rungs if not rung.on_card])
    by, kind = ladder.rule.by, ladder.rule.kind
    if kind == "grows":
        return 0.3 + (by + 0.02) * (logs - logs[0]), 0.3 - 0.02 * (logs - logs[0])
    if kind == "shrinks":
        return 0.3 - (by + 0.02) * (logs - logs[0]), 0.3 + 0.02 * (logs - logs[0])
    if kind == "vanishes":
        return by - 0.02 + 0.05 * (logs[-1] - logs), by + 0.02 + 0.05 * (logs - logs[0])
    sign = 1 if kind == "stays above" else -1
    steps = (logs - logs[0]) / (logs[-1] - logs[0])
    return by + sign * (0.05 + 0 * logs), by + sign * (0.05 - 0.1 * steps)


@pytest.mark.parametrize("name", LADDERS)
def test_the_rule_of_every_ladder_rejects_the_opposite_trend(name):
    ladder = LADDERS[name]
    right, wrong = right_and_wrong(ladder)
    assert judgement.judge(ladder, measured(ladder, right)).verdict == HELD
    assert judgement.judge(ladder, measured(ladder, wrong)).verdict == NOT_HELD


@pytest.mark.parametrize("name", LADDERS)
def test_every_ladder_follows_a_row_of_the_ledger(name):
    paper, _, item = LADDERS[name].row.partition(": ")
    assert item in {i.name for i in PAPERS[paper].items}


def test_each_of_four_papers_has_at_least_two_ladders():
    papers = [ladder.row.partition(": ")[0] for ladder in LADDERS.values()]
    assert all(papers.count(p) >= 2 for p in set(papers)) and set(papers) == set(PAPERS)


@pytest.mark.parametrize(
    ("rule", "values", "verdict"),
    [
        (Trend("grows"), (0.1, 0.1, 0.1), OPEN),  # flat, so neither
        (Trend("grows", 0.05), (0.1, 0.12, 0.14), NOT_HELD),  # too slow
        (Trend("stays above", 0.2), (0.4, 0.3, 0.21), OPEN),  # it may level off, or go on falling
        (Trend("stays above", 0.2), (0.1, 0.3, 0.4), NOT_HELD),  # one size contradicts
        (Trend("stays below", 0.2), (0.1, 0.1, 0.17), OPEN),  # it bends again
        (Trend("vanishes", 0.05), (0.3, 0.15, 0.04), HELD),
        (Trend("vanishes", 0.05), (0.3, 0.2, 0.1), OPEN),  # the last size still has it
        (Trend("vanishes", 0.05), (0.3, 0.25, 0.2), NOT_HELD),  # too slow
        (Trend("vanishes", 0.05), (0.01, 0.01, 0.01), HELD),  # nothing was there
        (Trend("vanishes", 0.05), (0.01, 0.02, 0.03), NOT_HELD),  # little, but it grows
    ],
)
def test_what_a_rule_asks(rule, values, verdict):
    ladder = replace(LADDER, rule=rule)
    assert judgement.judge(ladder, measured(ladder, values)).verdict == verdict


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rungs": over({8: 1})}, "needs at least 3 rungs"),
        ({"rungs": ()}, "its sizes are none"),
        ({"rungs": over({4: 1, 8: 1, 16: 1}, card=(16,))}, "without an accelerator"),
        ({"rungs": over({16: 1, 8: 1, 4: 1})}, "in order, smallest first; they are 16, 8, 4"),
        ({"rungs": over({4: 1, 8: 1, 9: 1})}, "about twice the one before"),
        ({"paper_size": None}, "needs the paper's size"),
        ({"seeds": 3}, "needs 5 seeds, got 3"),
        ({"rungs": over({4: 1, 8: 1, 16: 1}, {"n_seeds": "3"})}, "unequal seeds"),
        ({"cells": {n: c._replace(overrides={"seed": "1"}) for n, c in CELLS.items()}}, "unequal"),
        ({"rule": Trend("rises")}, "unknown kind of trend"),
        ({"left": of("standrad")}, "Did you mean 'standard'"),
        ({"solved": "nobody"}, "unknown solved cell"),
        (
            {"rungs": (Rung(4, on_card=True), *over({8: 1, 16: 1, 32: 1}))},
            "a rung for a card below one for a CPU",
        ),
    ],
)
def test_a_wrong_ladder_is_a_one_line_error(changes, words):
    with pytest.raises(UserError, match=words) as error:
        replace(LADDER, **changes)
    assert "\n" not in str(error.value)


def test_three_seeds_suffice_where_a_size_takes_an_hour_a_seed():
    long = over({4: 1, 8: 1, 16: 200})
    assert replace(LADDER, rungs=long, seeds=3).seeds == 3


def test_a_size_on_a_card_tests_the_prediction_and_decides_nothing():
    ladder = replace(LADDER, rungs=(*LADDER.rungs, Rung(32, on_card=True)), rule=Trend("grows"))
    sizes = measured(ladder, (0.1, 0.2, 0.3))
    without = judgement.judge(ladder, [*sizes, Measured(ladder.rungs[-1])])
    number = sizes[0].number
    on_card = Measured(ladder.rungs[-1], number, sizes[0].value, core_seconds=9.0)
    with_card = judgement.judge(ladder, [*sizes, on_card])
    assert with_card[2:] == without[2:] and without.verdict == HELD and without.is_complete
    # The time on a card says nothing about that on a core.
    waiting = [*sizes[:2], Measured(sizes[2].rung), on_card]
    assert table.next_cost(judgement.judge(ladder, waiting)) == "16: 1 min 0 s"
    (line,) = table.card_sentences(with_card)
    assert line.startswith("size 32 on a card: predicted 0.4")
