r"""Causal mixing: the mean correlation of every pair of tokens, by position.

    python experiments/run.py --config=configs/mixit/sde_causal.py:scale=small

scale  what                                     time             expected numbers
tiny   m=4, n=32, 300 paths                     5 CPU seconds    z_rms near 1
small  m=12, n=200, 5,000 paths                 20 CPU seconds   z_rms 1; first pair .42, last .29
paper  m=32, n=500, 20,000 paths, 300 steps     CPU hours        the same pattern

Theorem 2.1 has no mask. With a causal mask it holds with coefficients that depend on the position:
token a is centred over the a tokens that it sees. The first token has no drift and only value
noise, the last one has the unmasked drift. The heat map shows the effect on E[rho_ab]; all
correlations start at 0.5.
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
