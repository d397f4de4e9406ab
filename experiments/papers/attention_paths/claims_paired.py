"""Claims of Figure 2, judged on new data sets by differences between predictors on the same data.

The rules of rows with `late=True` were written after their results were known. For the other rows,
the signs of some numbers were known from ten other data sets.

Paths: "good", "denoising", and the adversarial "a1" and "a2". "good + denoising" is the predictor
that is given these two paths only. "N = 10" is the network of width 10 with all four paths. The
GP limit is the Gaussian process of infinite width.
"""

from experiments.ledger.item import MOVED, Item, cell_of
from experiments.ledger.rules import above

CELL = {"datasets": cell_of("attention_paths", "datasets")}
NOISES = ("1", "2", "3.5", "5", "8")  # strengths of the noise perpendicular to the signal
REFERENCE_NOISE, *STRONGER_NOISES = NOISES

TOP = Item(
    "Figure 2c, top, paired",
    "A finite network beats its Gaussian-process limit, and beats the good path alone.",
    CELL,
    {
        "N = 10 beats the GP limit": above("gain/N=10 over GP limit", 0.0),
        "N = 10 beats the good path alone": above("gain/N=10 over good", 0.0),
    },
    metric="gain/N=10 over GP limit",
)
BOOST = Item(
    "Figure 2c, the boost",
    "In the GP limit the good and the denoising path together are better than the good path alone. "
    "The boost is even higher in the renormalized regime.",
    CELL,
    {
        "in the GP limit good + denoising beat good alone": above(
            "gain/good + denoising over good", 0.0
        ),
        "N = 10 beats good + denoising of the GP limit": above(
            "gain/N=10 over good + denoising", 0.0
        ),
    },
    metric="gain/N=10 over good + denoising",
    note="The renormalized regime is the network of N = 10, which finds the right paths among "
    "four. The predictor good + denoising is given them.",
)


def _adversarial_rules() -> dict:
    """Returns the rules of SUPPRESSED. "rise/.." is the entry at N = 10 minus that at N = 1000."""
    rules = {}
    for path in ("a1", "a2"):
        below_wide = f"the entry of {path} at N = 10 is below that at N = 1000"
        below_prior = f"the entry of {path} at N = 10 is below its prior mean, 1"
        rules[below_wide] = above(0.0, f"rise/{path}")
        rules[below_prior] = above(1.0, f"U/N=10/{path}")
    for path in ("a1", "a2"):
        above_prior = f"the entry of {path} at N = 1000 is above its prior mean, 1"
        rules[above_prior] = above(f"U/N=1000/{path}", 1.0)
    rules["the good path alone beats the GP limit"] = above("accuracy/good", "accuracy/GP limit")
    return rules


SUPPRESSED = Item(
    "Figure 2c, adversarial paths",
    "At N = 10 the adversarial paths are suppressed (diagonal entries of the order parameter). "
    "Near the GP limit they are not, so that the limit is worse than the good path alone.",
    CELL,
    _adversarial_rules(),
    metric="U/N=10/a1",
    note="In the paper all kernels of adversarial paths are suppressed. The off-diagonal entry of "
    "good and a1 is not: it is -.47 at N = 10 and .01 at N = 1000 (Figure 2c, bottom).",
    late=True,
)


def every_noise(name: str, design: str, attention: str = "") -> Item:
    """Returns the row of two paths at every noise strength. The claim is about strengths above 1.

    `design` is a network of the hidden Markov task: "two_paths" has a denoising head of random
    attention. `attention` adds the head's attention to the claim.
    """
    gain = f"gain/N=10 over {{}}/{design}/{{}}"
    others = {"good": "the good path alone", "GP limit": "the GP limit"}

    def beats_others(noise: str) -> dict:
        return {
            f"noise {noise}: N = 10 beats {text}": above(
                gain.format(other, f"sigma_perp={noise}"), 0.0
            )
            for other, text in others.items()
        }

    rules = {text: rule for noise in STRONGER_NOISES for text, rule in beats_others(noise).items()}
    rules |= {
        f"the gain over {text} is larger at noise 8 than at 1": above(
            gain.format(other, "growth"), 0.0
        )
        for other, text in others.items()
    }
    rules |= {
        f"noise {noise}: the paths are anticorrelated": above(
            0.0, f"correlation/N=10/{design}/sigma_perp={noise}"
        )
        for noise in NOISES
    }
    return Item(
        name,
        f"With stronger noise the network of the good and the denoising path{attention} is better "
        "than its GP limit and than the good path alone. The gain grows with the noise.",
        CELL,
        rules,
        metric=gain.format("GP limit", "sigma_perp=5"),
        note="All other rows have noise 1. In this row the comparisons at noise 1 are checks, "
        "which do not decide the verdict.",
        late=True,
        checks=beats_others(REFERENCE_NOISE),
        flags=(MOVED,),
    )


PAIRED = (
    TOP,
    BOOST,
    SUPPRESSED,
    every_noise("Figure 2e, every noise", "two_paths"),
    every_noise(
        "Appendix, uniform attention, every noise",
        "two_paths_uniform",
        " (a denoising head of uniform attention)",
    ),
)
