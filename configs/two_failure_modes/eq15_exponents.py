r"""Does the overlap of attention fall with length as the paper's power? (arXiv 2505.24333, eq. 15)

    python experiments/run.py --config=configs/two_failure_modes/eq15_exponents.py:scale=small

scale  sizes                                     time            expected powers at beta 0.57, 0.85
                                                                 and 1.13
tiny   64 and 1,024 tokens, 2 x 50 rows          5 CPU seconds   above the paper's powers
small  1,024 and 100,000 tokens, 8 x 100 rows    30 CPU seconds  -0.67, -0.31, -0.11
                                                                 (paper: -0.84, -0.64, -0.36)
paper  the same with 8 x 1,000 rows              5 CPU minutes   the same as small

The overlap Y_q is the sum of squares of an attention row. The run estimates the power of T, the
number of tokens, with which it falls: d ln Y_q / d ln T between two lengths of simulated rows.

Beta is the sharpness of attention and beta_c its critical value. With b = beta / beta_c the paper
states the power -1 + b^2. This is the power of exp(-entropy), a different mean of the same row. The
power of the overlap is -1 + 2 b^2 if b < 1/sqrt(3), and about -(1 - b^2)^2 / (4 b^2) above.
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
