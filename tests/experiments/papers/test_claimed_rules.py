"""Rules on recall and on attention paths hold for what is right and reject what is wrong."""

import pytest

from experiments.ledger.item import SMALLER
from experiments.ledger.rules import HELD, NOT_HELD
from experiments.ledger.statistics import Number
from experiments.papers import PAPERS
from experiments.papers.associations import claims_plateau

RECALL, PATHS = (
    {item.name: item for item in PAPERS[name].items} for name in ("associations", "attention_paths")
)
ERROR = 0.002  # between seeds


def judged(item, words: str, *numbers: float) -> str:
    """The verdict of the only rule or check that has these words; a number for each named side."""
    asked = item.rules | item.checks
    (rule,) = [rule for text, rule in asked.items() if words in text]
    left = iter(numbers)

    def read(side):
        if not side.metric:
            return Number(side.value)
        return Number(next(left)) if side.is_exact else Number(next(left), ERROR, 5)

    verdict = rule.judge(words, read).verdict
    assert not [*left], "more numbers than sides"
    return verdict


# item, words of its rule, numbers for which the sentence is true, and numbers for which it is not
CASES = [
    (RECALL, "Figure 11, the paper's sizes", "the lower loss", (0.6, 0.4), (0.4, 0.6)),
    (RECALL, "Figure 11, the paper's sizes", "reached, F1", (0.01,), (0.2,)),
    (RECALL, "Figures 3 and 7, the paper's sizes", "reached, F2", (0.01,), (0.2,)),
    (RECALL, "Figures 3 and 7, the paper's sizes", "previous token too", (0.01,), (0.2,)),
]


@pytest.mark.parametrize(
    "paper, item, words, right, wrong",
    CASES,
    ids=[f"{item}: {words}" for _, item, words, *_ in CASES],
)
def test_a_rule_rejects_what_is_wrong(paper, item, words, right, wrong):
    assert judged(paper[item], words, *right) == HELD
    assert judged(paper[item], words, *wrong) == NOT_HELD


def test_the_rows_at_the_papers_sizes_say_how_much_less_they_saw():
    sizes = claims_plateau.SIZES
    seen = int(sizes["train.steps"]) * int(sizes["train.batch_size"])
    assert f"1/{2000 * 512 / seen:.0f} of the paper's" in claims_plateau.NOTE_SIZES
    for item in (claims_plateau.AT_SIZE, claims_plateau.AT_SIZE_11):
        assert SMALLER in item.flags and item.note == claims_plateau.NOTE_SIZES
