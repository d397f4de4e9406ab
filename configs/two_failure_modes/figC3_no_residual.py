r"""Do tokens become equal within a few layers without residuals? (arXiv 2505.24333, Figure C.3)

    python experiments/run.py --config=configs/two_failure_modes/figC3_no_residual.py:scale=small

scale  sizes                                      time             expected rms error of theory
tiny   4 layers, 16 tokens, width 32, 2 seeds     10 CPU seconds   below 0.2
small  12 layers, 128 tokens, width 256, 8 seeds  20 CPU seconds   exact 0.009, limit 0.105
paper  12 layers, 512 tokens, width 600,          half an hour     exact 0.01
       16 seeds

The left figure is the cosine of two tokens after one block, starting at 0, for values of beta (the
sharpness of attention) and sigma_w^2 (the variance of the MLP's weights). The right figure is the
cosine by layer if the variances of value and MLP weights are 1. The exact theory averages over
networks with T tokens; the limit, as in the paper, has infinitely many.

In the limit tokens are equal after one layer if beta < sqrt(2). With 128 tokens several layers are
needed. Above sqrt(2) the cosine of the limit is 0.5546, 0.3364 and 0.3242 for sigma_w^2 = 0.2, 1
and 2.
"""

from configs import common

SECONDS = {"tiny": 10, "small": 20, "paper": 1800}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    layers, length, width, points, seeds = {
        "tiny": (4, 16, 32, 40, 2),
        "small": (12, 128, 256, 120, 8),
        "paper": (12, 512, 600, 200, 16),
    }[arguments["scale"]]
    settings = dict(
        betas=(0.5, 1.2, 1.8, 2.5, 4.0),
        layers=layers,
        length=length,
        width=width,
        sigma_b2=0.01,
        points=points,
    )
    config = common.figure(
        "two_failure_modes/figC3_no_residual", arguments, name="signal_no_residual", **settings
    )
    config.n_seeds = seeds
    return config
