r"""Eigenvalues of the attention matrix (arXiv 2505.24333, Figure C.1).

    python experiments/run.py --config=configs/two_failure_modes/figC1_spectrum.py:scale=small

scale  what                        time             expected edge of the bulk at beta = 0.5 and 1.8
tiny   T=64, d=64, 1 seed          5 CPU seconds    grows with beta
small  T=256, d=512, 8 seeds       10 CPU seconds   near the theory's 0.104 and 0.617
paper  T=512, d=512, 8 seeds       2 CPU minutes    larger at small beta: d = T

The outlier is 1 at any beta; the bulk's radius is sqrt(Y_q - Y_p) when d >> T and d = T makes it
sqrt(1 + T/d) larger at small beta. Each point has eight matrices.
"""

from configs import common

SECONDS = {"tiny": 5, "small": 10, "paper": 120}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    length, width, seeds = {
        "tiny": (64, 64, 1),
        "small": (256, 512, 8),
        "paper": (512, 512, 8),
    }[arguments["scale"]]
    settings = dict(betas=(0.2, 0.5, 1.0, 1.8, 3.0), length=length, width=width)
    config = common.figure(
        "two_failure_modes/figC1_spectrum", arguments, name="signal_spectrum", **settings
    )
    config.n_seeds = seeds
    return config
