r"""No residuals: how fast tokens agree (arXiv 2505.24333, Figure C.3).

    python experiments/run.py --config=configs/two_failure_modes/figC3_no_residual.py:scale=small

scale  what                           time             expected rms error against networks
tiny   L=4, T=16, d=32, 2 seeds       10 CPU seconds   below 0.2
small  L=12, T=128, d=256, 8 seeds    20 CPU seconds   exact 0.009, limit 0.105
paper  L=12, T=512, d=600, 16 seeds   half an hour     exact 0.01

Left: one block from rho = 0 over (beta, sigma_w^2). Right: by layer at sigma_V = sigma_w = 1. The
paper's limit is 1 after one layer for beta < sqrt(2); at T = 128 networks need several. Above, from
the limit: rho_1 = 0.5546, 0.3364, 0.3242 for sigma_w^2 = 0.2, 1, 2.
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
