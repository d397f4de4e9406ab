"""Rules on recall, attention paths and signals hold for a true sentence and reject a wrong one."""

from experiments.ledger.item import SMALLER, Item
from experiments.ledger.rules import HELD, NOT_HELD
from experiments.papers import PAPERS
from experiments.papers.associations import claims_sizes
from jaxformer.stats.differences import Number

RECALL, PATHS, SIGNAL = (
    {item.name: item for item in PAPERS[name].items}
    for name in ("associations", "attention_paths", "two_failure_modes")
)
UNIFORM = "Appendix, uniform attention for the denoising head"
ERROR = 0.002  # between seeds


def judged(item: Item, fragment: str, *numbers: float) -> str:
    """Returns the verdict of the only rule or check whose sentence contains the fragment.

    The numbers are those of the sides that name a cell, left side first.
    """
    rules = item.rules | item.checks
    (sentence,) = [sentence for sentence in rules if fragment in sentence]
    remaining = iter(numbers)

    def read(side):
        if not side.metric:
            return Number(side.value)
        value = next(remaining)
        return Number(value) if side.is_exact else Number(value, ERROR, 5)

    verdict = rules[sentence].judge(sentence, read).verdict
    assert not [*remaining], "more numbers than sides"
    return verdict


# item, fragment of its rule's sentence, numbers that make the sentence true, and false
CASES = [
    # Gradients that are only halved have not vanished.
    (SIGNAL, "Section 1, vanishing gradients", "in blocks whose input", (0.0, -2.0), (0.0, -0.3)),
    (SIGNAL, "Section 1, vanishing gradients", "input of 60 blocks", (-2.0,), (-0.3,)),
    # A deviation that does not depend on T, and one in proportion to ln T.
    (SIGNAL, "Equation 11", "grows as (ln T)", (0.5,), (0.0,)),
    (SIGNAL, "Equation 11", "grows as (ln T)", (0.5,), (1.0,)),
    (SIGNAL, "Equation 11", "with a fixed deviation", (0.95, 0.88), (0.88, 0.88)),
    (SIGNAL, "Equation 11", "stays within .1", (0.55, 0.6), (0.95, 0.6)),
    # The overlap of a uniform row.
    (SIGNAL, "Equation 13, above the transition", "beta = 2 and", (0.29, 0.29), (0.0, 0.29)),
    (SIGNAL, "Equation 13, above the transition", "beta = 3 and", (0.53, 0.53), (0.0, 0.53)),
    (SIGNAL, "Appendix C.1, orders in T", "with a fixed variance", (-0.5,), (-0.1,)),
    (SIGNAL, "Appendix C.1, orders in T", "with the variance ln T", (-0.1,), (-0.5,)),
    # Scores divided by the width of a head in place of its root, and a third of the variance.
    (SIGNAL, "Section 1, beta_c and hyperparameters", "of 16 heads", (1.6, 1.6), (6.4, 1.6)),
    (SIGNAL, "Section 1, beta_c and hyperparameters", "at widths 64", (1.6, 1.6), (0.4, 1.6)),
    (
        SIGNAL,
        "Section 2, the law of the weights",
        "60 layers at beta = 0.02: the cosine of tokens with uniform",
        (0.94, 0.94),
        (0.21, 0.94),
    ),
    (
        SIGNAL,
        "Section 2, the law of the weights",
        "12 layers at beta = 1.8: the cosine of tokens with binary",
        (0.2, 0.2),
        (0.04, 0.2),
    ),
    (
        SIGNAL,
        "Section 2, the law of the weights",
        "with binary weights attention",
        (1.6, 1.6),
        (4.8, 1.6),
    ),
    # Entries of opposite sign differ by more than the norm.
    (PATHS, "Section 3, the order parameter and the weights", "N = 10 the", (0.02,), (1.2,)),
    # Two layers that need equally many samples.
    (RECALL, "Section 3.1, samples", "that attention needs grow", (1.0,), (0.0,)),
    (RECALL, "Section 3.1, samples", "that the feed-forward layer needs", (0.0,), (1.0,)),
    # Halfway to 1 from .5 is not near 1.
    (RECALL, "Figure 10", "without F2", (0.98,), (0.71,)),
    (RECALL, "Figure 10", "probability above .5", (0.65,), (0.3,)),
    (RECALL, "Figure 10, to the plateau", "without F2", (0.98,), (0.907,)),
    (RECALL, "Figure 3", "the noise has a probability of .5", (0.48,), (0.95,)),
    (RECALL, "Figure 4", "fine-tuned: attention on the noise", (0.04,), (0.3,)),
    (RECALL, "Figure 4", "noise: attention on the answer is", (0.9,), (0.5,)),
    # Attention that avoided the noise before any noise was seen.
    (RECALL, "Figure 4", "fine-tuning widens the gap", (0.9, 0.05), (0.3, 0.41)),
    # A difference of .15 counted as agreement in an earlier rule.
    (RECALL, "Figure 4, to the plateau", "after clean training", (0.05,), (0.15,)),
    (RECALL, "Figure 4, to the plateau", "noise: attention on the noise", (0.04,), (0.3,)),
    (RECALL, "Figure 4, to the plateau", "fine-tuned: attention on the answer is", (0.9,), (0.5,)),
    (RECALL, "Figure 4, the paper's sizes", "attention on the noise", (0.02,), (0.3,)),
    (RECALL, "Figure 8, the paper's sizes", "within 20 steps", (0.95,), (0.82,)),
    (RECALL, "Figure 3, the paper's sizes", "probability of .5", (0.49,), (0.95,)),
    (RECALL, "Figure 7, the paper's sizes", "logit for more than 90 %", (0.99,), (1 / 33,)),
    # Only the trigger is mapped to the noise.
    (RECALL, "Figure 7", "logit for more than 90 %", (0.99,), (1 / 33,)),
    (RECALL, "Figure 7, to the plateau", "logit for more than 90 %", (0.99,), (1 / 33,)),
    (RECALL, "Figure 8", "from scratch the noise exceeds", (0.95,), (0.82,)),
    (RECALL, "Figure 8, to the plateau", "in fine-tuning the noise exceeds", (0.95,), (0.82,)),
    (RECALL, "Figure 11", "the loss without F1", (1.1, 0.5), (0.5, 1.1)),
    (RECALL, "Figure 13, to the plateau", "Wo at 5 % of its rank helps", (0.2, 0.1), (0.1, 0.2)),
    (RECALL, "Figure 13, to the plateau", "dropping Wo", (-0.4,), (0.1,)),
    (
        RECALL,
        "Figure 13, to the plateau",
        "dropping F1 in the networks of Figure 11 helps more than Wo at 5 %",
        (0.3, 0.1),
        (0.1, 0.3),
    ),
    (
        RECALL,
        "Figure 13, to the plateau",
        "Figure 11 helps more than Wo at 10 %",
        (0.3, 0.1),
        (0.1, 0.3),
    ),
    (
        RECALL,
        "Figure 6",
        "200,000 parameters: a share of 0.73 in MLPs beats 0",
        (2.7, 2.6),
        (2.6, 2.7),
    ),
    (RECALL, "Figure 6, wide enough", "a share of 0.84 in MLPs beats 0", (2.7, 2.6), (2.6, 2.7)),
    (RECALL, "Figure 19", "4 layers, rarer: dropping the last MLP raises", (0.4,), (-0.1,)),
    (RECALL, "Beside Figure 19, guessing", "6 layers: without", (0.89,), (0.45,)),
    # 5 layers converge like 4.
    (RECALL, "Figure 20", "the loss of 5 layers", (3.5, 1.8), (1.7, 1.8)),
    (
        RECALL,
        "Figure 20",
        "3 layers: the last MLP at 1 % of its rank raises",
        (0.4, 0.1),
        (0.1, 0.2),
    ),
    (
        RECALL,
        "Figure 20",
        "4 layers: the last MLP at 1 % of its rank lowers",
        (1.8, 1.5),
        (1.5, 1.8),
    ),
    (RECALL, "Beside Figure 20, guessing", "3 layers: with", (0.9,), (0.44,)),
    (RECALL, "Appendix B.5, the best cut", "at 0.1 of", (0.47, 0.43), (0.3, 0.43)),
    # Dropping F2 leaves the noise as likely as before.
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
    (RECALL, "Figure 11, the paper's sizes", "the loss without F1", (0.6, 0.4), (0.4, 0.6)),
    (RECALL, "Figure 11, the paper's sizes", "gain without F1", (0.01,), (0.2,)),
    (RECALL, "Figure 3, the paper's sizes", "probability of .98", (0.98,), (0.907,)),
    (RECALL, "Figure 7, the paper's sizes", "the previous token", (0.98,), (0.2,)),
    (RECALL, "Figure 7, the paper's sizes", "plateau", (0.01,), (0.2,)),
    (RECALL, "Figure 10, the paper's sizes", "above .95", (0.98,), (0.907,)),
    # P(IO) falls too.
    (RECALL, "Figure 15", "1B: LASER lowers P(IO)", (-0.01,), (-0.3,)),
    (RECALL, "Figure 17", "layer 10 at 0.8 of its rank: P(them)", (0.1, 0.05), (0.1, 0.2)),
    (RECALL, "Figure 17", "layer 9 at 0.1 of its rank: P(the)", (0.1, 0.05), (0.1, 0.2)),
    (PATHS, "Figure 2c, paths in isolation", "a1 alone", (0.505,), (0.595,)),
    (PATHS, "Figure 2c, paths in isolation", "denoising alone", (0.505,), (0.595,)),
    # Paths suppressed at every width do not worsen the GP limit.
    (PATHS, "Figure 2c, adversarial paths", "a1 at N = 1000", (1.15,), (0.4,)),
    (PATHS, "Figure 2c, adversarial paths", "beats the GP", (0.92, 0.84), (0.83, 0.84)),
    # The identity in place of the theory; scores without a relation to the accuracy.
    (PATHS, "Figure 3c, e", "3c: the theory", (0.12,), (-0.01,)),
    (PATHS, "Figure 3c, e", "3e: head score", (0.4,), (-0.1,)),
    (PATHS, "Beside Figure 3f, the Markov task", "head (2)2", (0.4, 0.0), (0.0, 0.4)),
    # The theory of another width.
    (PATHS, "Figure 2c, bottom", "denoising,denoising of", (7.3, 6.85), (7.3, 2.18)),
    (PATHS, "Figure 2c, bottom", "N = 1000: the entry of good", (1.27,), (12.0,)),
    (PATHS, "Figure 2e, every noise", "noise 2: N = 10 beats the GP", (0.02,), (-0.01,)),
    (PATHS, "Figure 2e, every noise", "the gain over the good path alone", (0.3,), (-0.1,)),
    (PATHS, "Appendix, pruning a wider network", "3 pruned", (-0.02,), (0.03,)),
    (PATHS, UNIFORM, "network with a random head", (0.92, 0.92), (0.85, 0.92)),
    (PATHS, "Appendix, a deeper network", "one-shot: N = 10", (0.02,), (-0.02,)),
    (PATHS, "Appendix, a wider network", "one-shot: head score", (0.3,), (-0.1,)),
    # Networks that train end far below the loss of frequencies.
    (SIGNAL, "Figure 1f", "rank collapse learns no more", (3.3, 3.35), (3.1, 3.35)),
    (SIGNAL, "Figure 1f, six curves", "entropy 1 learns no more", (5.7, 5.73), (5.1, 5.73)),
    (SIGNAL, "Figure 1f, T = 32", "rank collapse learns no more", (3.28, 3.34), (2.8, 3.34)),
    (SIGNAL, "Figure 4", "beta = 4.0 learns no more", (3.3, 3.35), (2.84, 3.35)),
    (SIGNAL, "Figure C.2", "shrinks", (0.3, 0.1), (0.1, 0.3)),
    (SIGNAL, "Section 3.2, blocked training", "frozen", (0.17, 0.17), (0.03, 0.17)),
    # A curve for sigma_V = 1, and an entropy without a jump.
    (SIGNAL, "Figure 1c", "of networks is the paper's", (1.235, 1.228), (1.235, 2.4)),
    (SIGNAL, "Figure 1c, the line beta_c", "falls faster", (0.4, 0.05), (0.11, 0.15)),
    (SIGNAL, "Figure 1c, the line beta_c", "below a tenth", (0.05,), (0.41,)),
    # Predicting 0 at each layer.
    (SIGNAL, "Figure 1d, e", "60 layers, alpha_SA = 1.5: the limit", (0.04,), (0.945,)),
    (SIGNAL, "Figure 3, finite size", "at rho = 0.11 the transition", (0.33,), (1.02,)),
    (SIGNAL, "Figure 3, finite size", "further below", (0.61, 0.33), (0.33, 0.61)),
    (SIGNAL, "Figure B.2", "below a tenth", (0.05,), (0.47,)),
    (
        SIGNAL,
        "Figure B.2",
        "at rho = 0.6 Y_p is a smaller share",
        (0.47, 0.05),
        (0.05, 0.47),
    ),
    (SIGNAL, "Figure C.1", "beta = 3 is larger", (0.76, 0.6), (0.6, 0.76)),
    (SIGNAL, "Figure C.3", "beyond the transition", (0.35,), (0.99,)),
    (SIGNAL, "Figure C.3", "beta = 1.2", (0.99,), (0.36,)),
]


def test_rules_reject_known_wrong_alternatives():
    failures = []
    for items, name, fragment, right, wrong in CASES:
        verdicts = judged(items[name], fragment, *right), judged(items[name], fragment, *wrong)
        if verdicts != (HELD, NOT_HELD):
            failures.append(f"{name}: {fragment}: {verdicts}")
    assert not failures


def test_rows_at_the_papers_sizes_state_the_share_of_its_sequences():
    sizes = claims_sizes.SIZES
    sequences = int(sizes["train.steps"]) * int(sizes["train.batch_size"])
    assert f"1/{2000 * 512 / sequences:.0f} of the paper's" in claims_sizes.NOTE_SIZES
    for item in claims_sizes.AT_SIZE:
        assert SMALLER in item.flags and item.note == claims_sizes.NOTE_SIZES
