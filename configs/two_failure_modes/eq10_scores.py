r"""Scores as random energies: their covariances (arXiv 2505.24333, eq. 10).

    python experiments/run.py --config=configs/two_failure_modes/eq10_scores.py:scale=small

scale  what                            time            expected covariance at rho = 0.6
tiny   T=6, d=16, 200 heads            5 CPU seconds   1, 0.6 and 0.36, roughly
small  T=8, d=64, 8000 heads           20 CPU seconds  1, 0.6 and 0.36
paper  T=8, d=128, 40,000 heads        5 CPU minutes   the same

Two scores a_ts of a random head, of deviation 1, have covariance 1 if both tokens are the same, rho
if one is, rho^2 if none is, for tokens of cosine rho. The theory builds on this.
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
