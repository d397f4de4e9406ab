r"""Does the theory predict the cosine after one attention layer? (arXiv 2505.24333, Figure 3)

    python experiments/run.py --config=configs/two_failure_modes/fig3_phase.py:scale=small

scale  sizes                                     time             expected rms error of the theories
tiny   32 tokens, width 64, 4 x 3 networks       5 CPU seconds    below 0.1
small  256 tokens, width 512, 13 x 9 networks,   10 CPU seconds   exact 0.015, limit 0.097
       3 seeds
paper  1,024 tokens, width 512, 25 x 19          2 CPU minutes    exact 0.019, limit 0.104
       networks, 3 seeds

SA(rho) is the cosine of two tokens after attention if their cosine was rho before. Beta is the
sharpness of attention. The run compares measured networks with two theories: the paper's limit of
infinitely many tokens, and the exact average for T tokens.

The paper compares its limit by eye. With 1,024 tokens the limit is wrong by up to 0.99 at low beta
near rho = 0. It predicts that networks collapse in one layer, but SA(0) is 1 / (T Y_q), with the
overlap Y_q of an attention row with itself. The caption of the figure has width 512, the appendix
600. The paper's rule for finite T, its eq. 15, has the wrong exponent
(configs/two_failure_modes/eq15_exponents.py).
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
