r"""Phase diagram of one attention layer (arXiv 2505.24333, Figure 3).

    python experiments/run.py --config=configs/two_failure_modes/fig3_phase.py:scale=small

scale  what                                  time             expected rms error against networks
tiny   T=32, d=64, 4x3 networks              5 CPU seconds    below 0.1
small  T=256, d=512, 13x9 networks, 3 seeds  10 CPU seconds   exact 0.015, limit 0.097
paper  T=1024, d=512, 25x19, 3 seeds         2 CPU minutes    exact 0.019, limit 0.104

Theory and measurement of SA(rho), the cosine of two tokens after attention. The paper compares its
limit by eye; at T = 1024 it is wrong by up to 0.99 near (rho = 0, low beta), where networks do not
collapse in one layer: SA(0) = 1/(T Y_q). The caption has d = 512, the appendix 600. The finite-size
rule of eq. 15, T^{-1+(beta/beta_c)^2}, has the wrong exponent (see eq15_exponents).
"""

from configs import common

SECONDS = {"tiny": 5, "small": 10, "paper": 120}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    length, width, points, measured, seeds = {
        "tiny": (32, 64, 40, (4, 3), 1),
        "small": (256, 512, 160, (13, 9), 3),
        "paper": (1024, 512, 200, (25, 19), 3),
    }[arguments["scale"]]
    settings = dict(length=length, width=width, beta_max=4.0, points=points, measured=measured)
    config = common.figure(
        "two_failure_modes/fig3_phase", arguments, name="signal_phase", **settings
    )
    config.n_seeds = seeds
    return config
