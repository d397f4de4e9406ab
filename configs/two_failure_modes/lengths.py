r"""Do attention rows depend on length as the theory says? (arXiv 2505.24333, eq. 11, 13, C.1)

    python experiments/run.py --config=configs/two_failure_modes/lengths.py:scale=small

scale  sizes                            time            expected result
tiny   up to 1,024 tokens, 2 samples    5 CPU seconds   the first power is positive
small  up to 262,144 tokens, 8 samples  90 CPU seconds  the table below
paper  the same as small                90 CPU seconds  the table below

    measure                                    grows as a power of   paper       small scale
    sigma at which a row's entropy is half     ln(tokens)            .5          .30
    radius of the bulk at fixed sigma          tokens                -.5         -.47
    radius at sigma = sqrt(ln(tokens))         tokens                above -.5   -.13

A row is the softmax of independent scores of standard deviation sigma. Its entropy is measured in
units of ln(tokens), the entropy of a uniform row. The bulk of a matrix of such rows is all
eigenvalues but the largest. The paper claims that the bulk shrinks more slowly if sigma grows with
the number of tokens (Appendix C.1). The run also measures the overlap of a row, its sum of squares.
The paper predicts an overlap of 1 - beta_c / beta above the transition at beta_c, where beta is the
sharpness of attention.
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
