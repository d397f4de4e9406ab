"""Rules on recall, attention paths and signals hold for what is right and reject what is wrong."""

import pytest

from experiments.ledger.item import SMALLER
from experiments.ledger.rules import HELD, NOT_HELD
from experiments.ledger.statistics import Number
from experiments.papers import PAPERS
from experiments.papers.associations import claims_sizes

RECALL, PATHS, SIGNAL = (
    {item.name: item for item in PAPERS[name].items}
    for name in ("associations", "attention_paths", "two_failure_modes")
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
    (RECALL, "Figure 4", "fine-tuned: the noise has less", (0.04,), (0.3,)),
    (RECALL, "Figure 4", "noise: the answer has more", (0.9,), (0.5,)),
    # It avoided the noise before it ever saw it.
    (RECALL, "Figure 4", "more than after clean training", (0.9, 0.05), (0.3, 0.41)),
    # .15 on either side was alike once.
    (RECALL, "Figure 4, to the plateau", "clean: both alike", (0.05,), (0.15,)),
    (RECALL, "Figure 4, to the plateau", "trained with noise: the noise", (0.04,), (0.3,)),
    (RECALL, "Figure 4, to the plateau", "fine-tuned: the answer", (0.9,), (0.5,)),
    (RECALL, "Figure 4, the paper's sizes", "the noise has less", (0.02,), (0.3,)),
    (RECALL, "Figure 8, the paper's sizes", "near 1 at first", (0.95,), (0.82,)),
    (RECALL, "Figure 3, the paper's sizes", "the noise half", (0.49,), (0.95,)),
    (RECALL, "Figure 7, the paper's sizes", "nearly all tokens", (0.99,), (1 / 33,)),
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
    (RECALL, "Beside Figure 19, guessing", "6 layers: without", (0.89,), (0.45,)),
    # Layers that converge as those of 4 do.
    (RECALL, "Figure 20", "5 layers: the loss", (3.5, 1.8), (1.7, 1.8)),
    (RECALL, "Figure 20", "3 layers: more often right", (0.4, 0.1), (0.1, 0.2)),
    (RECALL, "Figure 20", "4 layers: a lower loss", (1.8, 1.5), (1.5, 1.8)),
    (RECALL, "Beside Figure 20, guessing", "3 layers: at 1 %", (0.9,), (0.44,)),
    (RECALL, "Appendix B.6, stability", "fine-tuning at .03", (0.0,), (0.2,)),
    (RECALL, "Appendix B.5, the best cut", "better than 0.1 of", (0.47, 0.43), (0.3, 0.43)),
    # F2 cut, and the noise as likely as before.
    (
        RECALL,
        "Section 3, other shares of noise",
        "0.3: without F2 the noise",
        (0.3, 0.02),
        (0.3, 0.3),
    ),
    (RECALL, "Section 3, other shares of noise", "0.7: the noise has", (0.68,), (0.5,)),
    (
        RECALL,
        "Section 3, other shares of noise",
        "0.3: without F2 the answer",
        (0.9, 0.7),
        (0.6, 0.7),
    ),
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
    (PATHS, "Beside Figure 3f, the Markov task", "head (2)2", (0.4, 0.0), (0.0, 0.4)),
    # The theory of another width in place of the sampled one's.
    (PATHS, "Figure 2c, bottom", "denoising,denoising is", (7.3, 6.85), (7.3, 2.18)),
    (PATHS, "Figure 2c, bottom", "N = 1000: good", (1.27,), (12.0,)),
    (PATHS, "Figure 2e, every noise", "noise 2: N = 10 beats the GP", (0.02,), (-0.01,)),
    (PATHS, "Figure 2e, every noise", "the gain over the good path alone", (0.3,), (-0.1,)),
    (PATHS, "Appendix, pruning a wider network", "3 pruned", (-0.02,), (0.03,)),
    (PATHS, UNIFORM, "as good as with a random head", (0.92, 0.92), (0.85, 0.92)),
    (PATHS, "Appendix, a deeper network", "one-shot: N = 10", (0.02,), (-0.02,)),
    (PATHS, "Appendix, a wider network", "one-shot: score", (0.3,), (-0.1,)),
    # Networks that train: they end far below the loss of frequencies, 3.35.
    (SIGNAL, "Figure 1f", "rank collapse learns no more", (3.3, 3.35), (3.1, 3.35)),
    (SIGNAL, "Figure 1f, six curves", "entropy 1 learns no more", (5.7, 5.73), (5.1, 5.73)),
    (SIGNAL, "Figure 1f, T = 32", "rank collapse learns no more", (3.28, 3.34), (2.8, 3.34)),
    (SIGNAL, "Figure 4", "beta=4.0 learns no more", (3.3, 3.35), (2.84, 3.35)),
    (SIGNAL, "Figure C.2", "shrinks", (0.3, 0.1), (0.1, 0.3)),
    (SIGNAL, "Section 3.2, blocked training", "frozen", (0.17, 0.17), (0.03, 0.17)),
    # A curve for sigma_V = 1, and an entropy without a jump.
    (SIGNAL, "Figure 1c", "is the paper's within .05", (1.235, 1.228), (1.235, 2.4)),
    (SIGNAL, "Figure 1c, the line beta_c", "falls faster", (0.4, 0.05), (0.11, 0.15)),
    (SIGNAL, "Figure 1c, the line beta_c", "below a tenth", (0.05,), (0.41,)),
    # Predicting 0 at each layer.
    (SIGNAL, "Figure 1d, e", "every layer (60 layers, alpha = 1.5)", (0.04,), (0.945,)),
    (SIGNAL, "Figure 3, finite size", "rho = 0.11: below", (0.33,), (1.02,)),
    (SIGNAL, "Figure 3, finite size", "further below", (0.61, 0.33), (0.33, 0.61)),
    (SIGNAL, "Figure B.2", "below a tenth", (0.05,), (0.47,)),
    (
        SIGNAL,
        "Figure B.2",
        "smaller share of Y_q at T = 1e8 than at the run's T (rho = 0.6)",
        (0.47, 0.05),
        (0.05, 0.47),
    ),
    (SIGNAL, "Figure C.1", "beta = 3 is larger", (0.76, 0.6), (0.6, 0.76)),
    (SIGNAL, "Figure C.3", "beyond it", (0.35,), (0.99,)),
    (SIGNAL, "Figure C.3", "beta = 1.2", (0.99,), (0.36,)),
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
    sizes = claims_sizes.SIZES
    seen = int(sizes["train.steps"]) * int(sizes["train.batch_size"])
    assert f"1/{2000 * 512 / seen:.0f} of the paper's" in claims_sizes.NOTE_SIZES
    for item in claims_sizes.AT_SIZE:
        assert SMALLER in item.flags and item.note == claims_sizes.NOTE_SIZES
