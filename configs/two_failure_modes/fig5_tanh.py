r"""Do tokens stay apart at any depth with tanh and large weights? (arXiv 2505.24333, Figure 5)

    python experiments/run.py --config=configs/two_failure_modes/fig5_tanh.py:variant=one

variant  equal (sigma_V^2 = sigma_w^2) | one (sigma_V^2 = 1): the variance of value weights; that
         of MLP weights is sigma_w^2

scale  sizes                             time             expected cosine at sigma_w = 1 and 2.5
tiny   20 layers, width 32, 2 seeds      10 CPU seconds   1 and about 0.4 (equal) or 0.2 (one)
small  200 layers, width 256, 32         80 CPU seconds   1 and 0.369 (equal)
       tokens, 16 seeds
paper  200 layers, width 600, 25 seeds   an hour          1 and 0.353 (equal) or 0.18 (one)

The measured cosine is the mean over the second half of the layers, where it has reached a fixed
point. For infinitely many tokens the fixed point at sigma_w = 2.5 is 0.353 with sigma_V = sigma_w,
as in the paper's Section 2, and 0.176 with sigma_V = 1. (Gauss-Hermite quadrature with 64 points
gives 0.351 and 0.175.) Both agree with the paper's claim of a stable cosine below 1.
"""

from configs import common

SECONDS = {"tiny": 10, "small": 80, "paper": 3600}


def get_config(arg: str = ""):
    arguments = common.parse(arg, variant=("equal", "one"), scale=common.SCALES)
    layers, length, width, seeds = {
        "tiny": (20, 16, 32, 2),
        "small": (200, 32, 256, 16),
        "paper": (200, 128, 600, 25),
    }[arguments["scale"]]
    settings = dict(
        sigma_ws=(1.0, 2.5),
        values=arguments["variant"],
        layers=layers,
        length=length,
        width=width,
        beta=0.02,
        alpha_sa=6.0,
        alpha_mlp=1.0,
        sigma_b2=0.1,
    )
    config = common.figure("two_failure_modes/fig5_tanh", arguments, name="signal_tanh", **settings)
    config.n_seeds = seeds
    return config
