r"""Does the theory predict the overlap of attention rows? (arXiv 2505.24333, Figure B.1)

    python experiments/run.py --config=configs/two_failure_modes/figB1_overlap.py:scale=small

scale  sizes                                   time            expected rms error of the theories
tiny   16 and 64 tokens, 100 rows              5 CPU seconds   exact: within 4 standard errors
small  64, 1,024 and 100,000 tokens, 100 rows  5 CPU seconds   exact 0.020 (the noise), limit 0.124
paper  the same with 1,000 rows                1 CPU minute    exact 0.006

The overlap Y_q is the sum of squares of an attention row. The figure draws it against beta, the
sharpness of attention, for several numbers of tokens T. The exact theory averages over rows of T
tokens. Convergence to the limit T -> infinity is slow: at the critical beta_c the overlap is 0.18
with 100,000 tokens, where the limit is 0.

With b = beta / beta_c, the paper gives T^(-1 + b^2) (dotted). This is exp(-entropy), not the
overlap. The overlap is about T^(-1 + 2 b^2) if b < 1/sqrt(3), and T^(-(1 - b^2)^2 / (4 b^2)) up to
b = 1. Below a beta of about 1.2 the paper's formula is too small: at beta 1 and T = 1e8 it is 1e-4,
while the overlap is 0.0126. Near beta_c, where the formula is 1, it is too large.
"""

from configs import common

SECONDS = {"tiny": 5, "small": 5, "paper": 60}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    lengths, points, rows = {
        "tiny": ((16, 64), 5, 100),
        "small": ((64, 1024, 100_000), 14, 100),
        "paper": ((64, 1024, 100_000), 20, 1000),
    }[arguments["scale"]]
    settings = dict(lengths=lengths, beta_max=3.0, points=points, rows=rows)
    return common.figure(
        "two_failure_modes/figB1_overlap", arguments, name="signal_overlap", **settings
    )
