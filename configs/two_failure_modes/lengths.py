r"""Attention at initialisation against the number of tokens (arXiv 2505.24333, eq. 11, 13, C.1).

    python experiments/run.py --config=configs/two_failure_modes/lengths.py:scale=small

scale  what                               time            expected
tiny   T up to 1,024, 2 samples           5 CPU seconds   the deviation at half entropy grows with T
small  T up to 262,144, 8 samples         90 CPU seconds  powers .30 (of ln T), -.47 and -.13 (of T)
paper  the same as small                  90 CPU seconds  the paper states .5, -.5 and above -.5

Rows are softmax rows of independent scores of deviation sigma_a. The entropy is measured in units
of ln T; the deviation at which it is 1/2 should grow as sqrt(ln T). Above the transition the
overlap should be 1 - beta_c / beta. The bulk of eigenvalues should shrink as T^(-1/2) if sigma_a is
fixed, and more slowly if sigma_a = sqrt(ln T).
"""

from configs import common

SECONDS = {"tiny": 5, "small": 90, "paper": 90}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    tiny = arguments["scale"] == "tiny"
    config = common.figure(
        "two_failure_modes/lengths",
        arguments,
        name="signal_lengths",
        lengths=(64, 1024) if tiny else (64, 512, 4096, 32_768, 262_144),
        matrix_lengths=(32, 64) if tiny else (64, 128, 256, 512),
        betas=(2.0, 3.0),
        fixed_std=1.0,
        rows=8 if tiny else 16,
    )
    config.n_seeds = 2 if tiny else 8
    return config
