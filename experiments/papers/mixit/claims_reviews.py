"""Claims of the MixiT papers about sentiment, tested on freely available film reviews."""

from experiments.ledger.item import Cell, Item
from experiments.ledger.rules import above, near, of, trivial
from experiments.papers.mixit.claims_common import SMALL
from experiments.papers.mixit.claims_text import SIGHTS

REVIEWS_NOTE = (
    "10,605 sentences of film reviews replace the Yelp reviews; 20 people judged the polarity of "
    "each. 7,441 sentences are for training and 2,100 for the test. The networks have a BPE of "
    "4,096 tokens, width n = 32, two layers and five seeds. Training stops when validation stops "
    "improving. The "
    "baseline is a logistic regression on the words of a review. The rules were written before "
    "any of these runs."
)


def reviews(variant: str, sight: str, **overrides: str) -> Cell:
    changes = {f"model.{name}": value for name, value in overrides.items()}
    return Cell(f"configs/text/reviews.py:variant={variant},sight={sight}", changes, scales=SMALL)


REVIEWS = Item(
    "Table 1, on 10,605 film reviews",
    "MixiT classifies reviews better than Standard, and Frozen-QK as well as Standard.",
    {
        f"{name}, {sight}": reviews(name, sight)
        for name in ("standard", "frozen_qk", "frozen_mlp", "mixit", "random", "random_mixit")
        for sight in SIGHTS
    },
    {
        f"MixiT classifies better than Standard, {condition}": above(
            of(f"mixit, {sight}"), of(f"standard, {sight}")
        )
        for sight, condition in SIGHTS.items()
    }
    | {
        f"Frozen-QK is at most .02 below Standard, {condition}": above(
            of(f"frozen_qk, {sight}"), of(f"standard, {sight}"), -0.02
        )
        for sight, condition in SIGHTS.items()
    },
    baseline="word_regression",
    checks={
        "MixiT that sees the whole text classifies better than causal Standard, as in the "
        "authors' code": above(of("mixit, both"), of("standard, causal")),
        "Standard classifies better than a word regression, if both see the whole text": above(
            of("standard, both"), trivial("standard, both", "word_regression")
        ),
        "MixiT classifies better than a word regression, if both see the whole text": above(
            of("mixit, both"), trivial("mixit, both", "word_regression")
        ),
        "MixiT is at most .02 below Standard, if both see the whole text": above(
            of("mixit, both"), of("standard, both"), -0.02
        ),
        "the random transformer is .02 below Standard, if both see the whole text": above(
            of("standard, both"), of("random, both"), 0.02
        ),
    },
    note=f"{REVIEWS_NOTE} Causal MixiT stops at the accuracy of a guess, after 750 of 2,000 "
    "steps: its validation did not improve. No causal network reaches the word regression. The "
    "runs that see the whole text and those of other variants were not made.",
)

REVIEWS_HEADS = Item(
    "Table 5, on 10,605 film reviews",
    "The number of heads hardly matters for MixiT's classification of reviews.",
    {
        f"{heads} heads": reviews("mixit", "both", **({} if heads == 4 else {"heads": str(heads)}))
        for heads in (1, 4, 16, 32)
    },
    {
        f"{heads} heads are within .02 of 4": near(of(f"{heads} heads"), of("4 heads"), 0.02)
        for heads in (1, 16, 32)
    },
    baseline="word_regression",
    note=f"{REVIEWS_NOTE} With 32 heads each head has one dimension.",
)
