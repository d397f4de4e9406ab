"""Claims of Section 3.1 on the numbers of samples in Theorem 1.

N is the number of symbols, T of tokens, and alpha the probability of the noise. An "exponent" is
the power of N with which the number of samples grows.
"""

from experiments.ledger.item import Item, cell_of
from experiments.ledger.rules import above, of

SAMPLES = Item(
    "Section 3.1, samples",
    "The feed-forward layer learns the noise from a number of samples of order 1, and attention "
    "from a number of order N, up to logarithms.",
    {"samples": cell_of("associations", "samples")},
    {
        "the samples that attention needs grow faster than N^.5": above("exponent/attention", 0.5),
        "the samples that the feed-forward layer needs grow slower than N^.25": above(
            0.25, "exponent/feed_forward"
        ),
    },
    metric="exponent/attention",
    note="A layer has enough samples if the margin of the noise reaches half of its value in "
    "Theorem 1, with the inputs of the proof, T = 4 N and alpha = .5. The paper says that order N "
    "suffices for attention, and that attention costs many more samples. The first rule tests this "
    "cost. Before the run we knew an argument against it (docs/associations.md), but no number.",
    checks={
        "at N = 128 attention needs more samples than the feed-forward layer": above(
            of("", "needed/attention/N=128"), of("", "needed/feed_forward/N=128")
        ),
    },
)

ITEMS = (SAMPLES,)
