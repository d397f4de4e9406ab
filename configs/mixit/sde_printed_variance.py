r"""The mixing variance the MixiT paper prints, 1/sqrt(nm), against the 1/(nm) its SDE needs.

    python experiments/run.py --config=configs/mixit/sde_printed_variance.py:scale=small

scale  what                               time             expected numbers (log Tr/m)
tiny   m=4, n=64, 16 layers               5 CPU seconds    printed far above 1/(nm)
small  m=8, n=256, 64 layers, 500         7 CPU seconds    1.47 at layer 16, 6.8 at 64; else 0
paper  the same with 5,000 samples        1 CPU minute     the same

The paper's text gives W the variance 1/sqrt(nm), a misprint of 1/(nm). With the printed variance
the trace grows without bound at fixed depth/width; with 1/(nm) it has the limit of Theorem 2.1.
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
