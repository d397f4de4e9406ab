r"""Samples that one gradient step needs to predict the noise (arXiv 2406.03068, below Theorem 1).

    python experiments/run.py --config=configs/associations/samples.py:scale=small

scale  what                                       time            expected
tiny   N = 8 and 16, m up to 64, 2 seeds          10 CPU seconds  it runs
small  N = 16 to 128, m up to 512, 8 seeds        2 CPU minutes   both need about 3 samples
paper  the same as small                          2 CPU minutes   the paper states orders

The paper observes that m of order 1 suffices for the feed-forward layer, and m of order N for
attention. m suffices if the margin of the noise reaches half of its value in Theorem 1. T = 4 N.
"""

from configs import common

SECONDS = {"tiny": 10, "small": 120, "paper": 120}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    tiny = arguments["scale"] == "tiny"
    config = common.figure(
        "associations/samples",
        arguments,
        name="associations_samples",
        vocabularies=(8, 16) if tiny else (16, 32, 64, 128),
        samples=(2, 8, 64) if tiny else (1, 2, 4, 8, 16, 32, 64, 128, 512),
        alpha=0.5,
        trials=2 if tiny else 8,
    )
    config.n_seeds = 2 if tiny else 8
    return config
