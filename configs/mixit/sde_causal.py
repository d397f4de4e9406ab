r"""Does the covariance equation of random mixing networks hold with causal mixing? (Theorem 2.1)

    python experiments/run.py --config=configs/mixit/sde_causal.py:scale=small

scale  sizes                                 time             expected result
tiny   4 tokens, width 32, 300 paths         5 CPU seconds    `z_rms` near 1
small  12 tokens, width 200, 5,000 paths     20 CPU seconds   `z_rms` 1; mean correlation .42 for
                                                              the first two tokens, .29 for the last
paper  32 tokens, width 500, 20,000 paths    CPU hours        the same pattern

Theorem 2.1 of the MixiT paper has no mask. With a causal mask the equation still holds, but its
coefficients depend on the position: token a is centred over the a tokens that it attends to. The
first token has no drift, and only the values add noise to it. The last token has the drift without
a mask. `z_rms` is the rms difference of networks and equation in standard errors; 1 means that they
agree.

The heat map shows the mean correlation of each pair of tokens. All correlations start at 0.5.
"""

from configs import common

SECONDS = {"tiny": 5, "small": 20, "paper": 3 * 3600}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    config = common.figure(
        "mixit/sde_causal",
        arguments,
        name="sde_causal",
        length=12,
        width=200,
        tau=1.0,
        paths=5_000,
        samples=5_000,
        steps=100,
    )
    if config.arguments.scale == "tiny":
        config.figure.update(length=4, width=32, paths=300, samples=300, steps=30)
    elif config.arguments.scale == "paper":
        config.figure.update(length=32, width=500, paths=20_000, samples=20_000, steps=300)
    return config
