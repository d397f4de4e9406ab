r"""The overlap Y_q against beta at several T (arXiv 2505.24333, Figure B.1).

    python experiments/run.py --config=configs/two_failure_modes/figB1_overlap.py:scale=small

scale  what                              time             expected
tiny   T=16, 64; 100 rows                5 CPU seconds    dots within 4 standard errors of lines
small  T=64, 1024, 100000; 100 rows      5 CPU seconds    rms error of the exact theory 0.020
                                                          (noise), of the limit 0.124
paper  the same, 1000 rows               1 CPU minute     exact 0.006

Corrected exponent: with b = beta/beta_c, Y_q ~ T^{-1+2b^2} for b < 1/sqrt(3) and about
T^{-(1-b^2)^2/(4b^2)} up to b = 1; the paper's T^{-1+b^2} (dotted) is e^{-entropy}, another Renyi
order: too small below beta of about 1.2 (at beta = 1, T = 1e8 it is 1e-4, the overlap 0.0126) and
too large near beta_c, where it is 1. Convergence is
logarithmic: at beta_c the overlap is 0.18 at T = 1e5, where the limit is 0.
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
