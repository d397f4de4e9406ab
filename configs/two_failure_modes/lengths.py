r"""Do attention rows depend on length as the theory says? (arXiv 2505.24333, eq. 11, 13, C.1)

    python experiments/run.py --config=configs/two_failure_modes/lengths.py:scale=small

scale  sizes                            time            expected powers (the table below)
tiny   up to 1,024 tokens, 2 samples    5 CPU seconds   the first is positive
small  up to 262,144 tokens, 8 samples  90 CPU seconds  .30, -.47 and -.13
paper  the same as small                90 CPU seconds  .30, -.47 and -.13

    power of         measure                                                 paper
    ln(tokens)       sigma at which the entropy of a row is ln(tokens) / 2   .5
    tokens           radius of the eigenvalues at fixed sigma                -.5
    tokens           the same at sigma = sqrt(ln(tokens))                    above -.5

A row is the softmax of independent scores of standard deviation sigma. The third claim is that
eigenvalues shrink more slowly if sigma grows with the number of tokens (Appendix C.1). The run also
measures the overlap of a row, its sum of squares. The paper predicts 1 - beta_c / beta above the
transition at beta_c, where beta is the sharpness of attention.
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
