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
UNIFORM = "Appendix, uniform attention for the denoising head"
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
    # Halfway to 1 from .5 is not near 1.
    (RECALL, "Figure 10", "without F2 correct near 1", (0.98,), (0.71,)),
    (RECALL, "Figure 10", "likelier than not", (0.65,), (0.3,)),
    (RECALL, "Figure 10, to the plateau", "without F2 correct near 1", (0.98,), (0.907,)),
    (RECALL, "Figure 3", "the noise half of the time", (0.48,), (0.95,)),
    (RECALL, "Figure 4", "the noise has less", (0.04,), (0.3,)),
    (RECALL, "Figure 4", "the answer has more", (0.9,), (0.5,)),
    # .15 on either side was alike once.
    (RECALL, "Figure 4, to the plateau", "clean: both alike", (0.05,), (0.15,)),
    (RECALL, "Figure 4, to the plateau", "the noise has less", (0.04,), (0.3,)),
    (RECALL, "Figure 4, to the plateau", "the answer has more", (0.9,), (0.5,)),
    # The trigger alone is mapped to the noise.
    (RECALL, "Figure 7", "nearly all tokens", (0.99,), (1 / 33,)),
    (RECALL, "Figure 7, to the plateau", "nearly all tokens", (0.99,), (1 / 33,)),
    (RECALL, "Figure 8", "from scratch: near 1 at first", (0.95,), (0.82,)),
    (RECALL, "Figure 8, to the plateau", "fine-tuned: near 1 at first", (0.95,), (0.82,)),
    (RECALL, "Figure 11", "the lower loss", (1.1, 0.5), (0.5, 1.1)),
    (RECALL, "Figure 13, to the plateau", "5 % helps more than 10 %", (0.2, 0.1), (0.1, 0.2)),
    (RECALL, "Figure 13, to the plateau", "no Wo at all", (-0.4,), (0.1,)),
    (RECALL, "Figure 13, to the plateau", "F1 helps more than 5 %", (0.3, 0.1), (0.1, 0.3)),
    (RECALL, "Figure 13, to the plateau", "F1 helps more than 10 %", (0.3, 0.1), (0.1, 0.3)),
    (RECALL, "Figure 6", "total=200000: a share of 0.73 beats 0.57", (2.7, 2.6), (2.6, 2.7)),
    (RECALL, "Figure 6, wide enough", "a share of 0.84 beats 0.73", (2.7, 2.6), (2.6, 2.7)),
    (RECALL, "Figure 19", "4 layers, rarer: without the last MLP the accuracy", (0.4,), (-0.1,)),
    (RECALL, "Figure 19, beyond guessing", "6 layers: without", (0.89,), (0.45,)),
    # Layers that converge as those of 4 do.
    (RECALL, "Figure 20, beyond guessing", "5 layers: the loss", (3.5, 1.8), (1.7, 1.8)),
    (RECALL, "Figure 20, beyond guessing", "3 layers: at 1 %", (0.9,), (0.44,)),
    (RECALL, "Appendix B.6, stability", "fine-tuning at .03", (0.0,), (0.2,)),
    (RECALL, "Figure 11, the paper's sizes", "the lower loss", (0.6, 0.4), (0.4, 0.6)),
    (RECALL, "Figure 11, the paper's sizes", "reached, F1", (0.01,), (0.2,)),
    (RECALL, "Figure 3, the paper's sizes", "correct with 0.98", (0.98,), (0.907,)),
    (RECALL, "Figure 7, the paper's sizes", "previous token", (0.98,), (0.2,)),
    (RECALL, "Figure 7, the paper's sizes", "plateau", (0.01,), (0.2,)),
    (RECALL, "Figure 10, the paper's sizes", "near 1", (0.98,), (0.907,)),
    # "The" gains on IO where both fall.
    (RECALL, "Figure 15", "1B: IO loses less", (-0.01,), (-0.3,)),
    (RECALL, "Figure 17", "layer 10 at 0.8: them falls", (0.1, 0.05), (0.1, 0.2)),
    (RECALL, "Figure 17", "layer 9 at 0.1: the falls", (0.1, 0.05), (0.1, 0.2)),
    (PATHS, "Figure 2c, paths in isolation", "a1 alone", (0.505,), (0.595,)),
    (PATHS, "Figure 2c, paths in isolation", "denoising alone", (0.505,), (0.595,)),
    # Suppressed at every width, which makes no difference to the GP limit.
    (PATHS, "Figure 2c, adversarial paths", "a1 of N = 1000", (1.15,), (0.4,)),
    (PATHS, "Figure 2c, adversarial paths", "beats the GP limit", (0.92, 0.84), (0.83, 0.84)),
    # The identity in place of the theory; scores that say nothing about the accuracy.
    (PATHS, "Figure 3c, e", "3c: the theory fits better", (0.12,), (-0.01,)),
    (PATHS, "Figure 3c, e", "3e: score and accuracy", (0.4,), (-0.1,)),
    (PATHS, "Figure 3f", "costs more than the lowest", (0.4, 0.0), (0.0, 0.4)),
    (PATHS, "Appendix, pruning a wider network", "3 pruned", (-0.02,), (0.03,)),
    (PATHS, UNIFORM, "as good as with a random head", (0.92, 0.92), (0.85, 0.92)),
    (PATHS, "Appendix, a deeper network", "one-shot: N = 10", (0.02,), (-0.02,)),
    (PATHS, "Appendix, a wider network", "one-shot: score", (0.3,), (-0.1,)),
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
    for item in claims_plateau.AT_SIZE:
        assert SMALLER in item.flags and item.note == claims_plateau.NOTE_SIZES
