r"""Does the variance of mixing weights that the MixiT paper prints agree with its own theorem?

    python experiments/run.py --config=configs/mixit/sde_printed_variance.py:scale=small

scale  sizes                               time             expected log(trace / tokens)
tiny   4 tokens, width 64, 16 layers       5 CPU seconds    printed variance far above 1/(nm)
small  8 tokens, width 256, 64 layers,     7 CPU seconds    printed variance 1.47 at layer 16 and
       500 samples                                          6.8 at layer 64; 1/(nm) near 0
paper  the same with 5,000 samples         1 CPU minute     the same

The text gives the mixing weights the variance 1/sqrt(nm), for width n and m tokens. Its theorem
needs 1/(nm), so this must be a misprint. With the printed variance the trace of Phi, the matrix of
inner products of tokens, grows without bound at fixed depth / width. With 1/(nm) it has the limit
of Theorem 2.1.
"""

from configs import common

SECONDS = {"tiny": 5, "small": 7, "paper": 60}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    config = common.figure(
        "mixit/sde_printed_variance",
        arguments,
        name="sde_printed_variance",
        length=8,
        width=256,
        layers=64,
        samples=500,
    )
    if config.arguments.scale == "tiny":
        config.figure.update(length=4, width=64, layers=16, samples=100)
    elif config.arguments.scale == "paper":
        config.figure.samples = 5_000
    return config
