r"""The exponent of the overlap below the transition (arXiv 2505.24333, eq. 15).

    python experiments/run.py --config=configs/two_failure_modes/eq15_exponents.py:scale=small

scale  what                                time            expected at beta 0.57, 0.85, 1.13
tiny   T=64 to 1024, 2 x 50 rows           5 CPU seconds   above the paper's
small  T=1024 to 100,000, 8 x 100 rows     30 CPU seconds  -0.67, -0.31, -0.11 (paper:
                                                           -0.84, -0.64, -0.36)
paper  the same, 8 x 1000 rows             5 CPU minutes   the same

d ln Y_q / d ln T between two lengths, of simulated rows. The paper's T^{-1+b^2}, b = beta/beta_c,
is e^{-entropy}, another Renyi order. Corrected: -1 + 2 b^2 for b < 1/sqrt(3), then about
-(1-b^2)^2/(4b^2).
"""

from configs import common

SECONDS = {"tiny": 5, "small": 30, "paper": 300}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    lengths, batches, rows = {
        "tiny": ((64, 1024), 2, 50),
        "small": ((1024, 100_000), 8, 100),
        "paper": ((1024, 100_000), 8, 1000),
    }[arguments["scale"]]
    return common.figure(
        "two_failure_modes/eq15_exponents",
        arguments,
        name="signal_exponents",
        betas=(0.57, 0.85, 1.13),
        lengths=lengths,
        rows=rows,
        batches=batches,
    )
