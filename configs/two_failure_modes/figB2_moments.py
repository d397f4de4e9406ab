r"""Does the theory predict norms and inner products after attention? (arXiv 2505.24333, Figure B.2)

    python experiments/run.py --config=configs/two_failure_modes/figB2_moments.py:scale=small

scale  sizes                               time             expected rms error of SA(q)
tiny   32 tokens, width 64, 2 seeds        5 CPU seconds    below 0.1
small  256 tokens, width 512, 6 seeds      5 CPU seconds    exact 0.002 to 0.005, limit 0.05 to 0.12
paper  1,024 tokens, width 600, 20 seeds   1 CPU minute     exact 0.001 to 0.006, limit 0.04 to 0.1

SA(q) is the mean square of a token after attention, SA(p) the inner product of two tokens. For
tokens of mean square 1 and cosine rho, SA(q) = (1 - rho) Y_q + rho and SA(p) = (1 - rho) Y_p + rho.
Y_q is the overlap of an attention row with itself, Y_p that of the rows of two tokens. The exact
theory has their averages for T tokens.

The limit, the paper's theory of infinitely many tokens, sets Y_p = 0. With few tokens Y_p is not
small: Y_p / Y_q is 0.37 with 1,024 tokens at beta 1 and rho 0.6.
"""

from configs import common

SECONDS = {"tiny": 5, "small": 5, "paper": 60}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    sizes = dict(
        tiny=dict(length=32, width=64, points=4),
        small=dict(length=256, width=512, points=12),
        paper=dict(length=1024, width=600, points=16),
    )[arguments["scale"]]
    settings = dict(rhos=(0.0, 0.3, 0.6), beta_max=4.0, **sizes)
    config = common.figure(
        "two_failure_modes/figB2_moments", arguments, name="signal_moments", **settings
    )
    config.n_seeds = dict(tiny=2, small=6, paper=20)[arguments["scale"]]
    return config
