r"""Second moments after attention (arXiv 2505.24333, Figure B.2).

    python experiments/run.py --config=configs/two_failure_modes/figB2_moments.py:scale=small

scale  what                           time             expected rms error of the exact theory
tiny   T=32, d=64, 2 seeds            5 CPU seconds    below 0.1
small  T=256, d=512, 6 seeds          5 CPU seconds    SA(q) 0.002 to 0.005 (limit 0.05 to 0.12)
paper  T=1024, d=600, 20 seeds        1 CPU minute     SA(q) 0.001 to 0.006 (limit 0.04 to 0.1)

SA(q) = (1-rho) Y_q + rho and SA(p) = (1-rho) Y_p + rho for q = 1, sigma_V = 1. The paper sets Y_p =
0, so that SA(p) = rho; at finite T it is not: Y_p / Y_q = 0.37 at T = 1024, beta = 1, rho = 0.6.
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
