"""The two observations of Section 3.1 about the numbers of samples in Theorem 1."""

from experiments.ledger.item import Item, cell_of
from experiments.ledger.rules import above, of

SAMPLES = Item(
    "Section 3.1, samples",
    "The feed-forward layer learns the noise from a number of samples of order 1, attention from "
    "one of order N, up to logarithms.",
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
    "suffices for attention and that it costs many more samples; the first rule tests the cost. "
    "An argument against it was known (docs/associations.md); no number had been seen.",
    checks={
        "at N = 128 attention needs more samples than the feed-forward layer": above(
            of("", "needed/attention/N=128"), of("", "needed/feed_forward/N=128")
        ),
    },
)

ITEMS = (SAMPLES,)
