r"""Do scores of random heads have the covariances of the theory? (arXiv 2505.24333, eq. 10)

    python experiments/run.py --config=configs/two_failure_modes/eq10_scores.py:scale=small

scale  sizes                                 time            expected covariances at cosine 0.6
tiny   6 tokens, width 16, 200 heads         5 CPU seconds   1, 0.6 and 0.36, roughly
small  8 tokens, width 64, 8,000 heads       20 CPU seconds  1, 0.6 and 0.36
paper  8 tokens, width 128, 40,000 heads     5 CPU minutes   1, 0.6 and 0.36

A score belongs to a query token and a key token. Let all tokens have the cosine rho and all scores
the variance 1. Two scores should then have the covariance 1 if they share both tokens, rho if they
share one, and rho^2 if they share none. The whole theory of the paper rests on these values.
"""

from configs import common

SECONDS = {"tiny": 5, "small": 20, "paper": 300}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    length, width, heads = {
        "tiny": (6, 16, 200),
        "small": (8, 64, 8000),
        "paper": (8, 128, 40_000),
    }[arguments["scale"]]
    return common.figure(
        "two_failure_modes/eq10_scores",
        arguments,
        name="signal_scores",
        rhos=(0.0, 0.3, 0.6, 0.9),
        length=length,
        width=width,
        heads=heads,
        chunk=200,
    )
