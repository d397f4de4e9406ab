r"""The covariance SDE compared with finite networks: paths, densities (MixiT, Theorem 2.1).

    python experiments/run.py --config=configs/mixit/sde_paths.py:scale=small

scale  what                                              time             expected numbers
tiny   m=4, widths 20 and 40, 500 paths                  5 CPU seconds    KS near its noise, .10
small  m=4, widths 50, 200, 500, 5,000 paths             20 CPU seconds   KS below .033 at n=200
paper  the same with 20,000 paths of 300 steps           35 CPU seconds   KS .005 to .009 at n=200

log-trace, correlation of two tokens and the two largest eigenvalues at tau = .25, .5 and 1, from
Phi_0 = .5 I + .5. The paper claims that the distribution of Phi converges to the SDE as n and depth
grow at a fixed ratio; already n = 50 is within the sampling noise. Raw entries of Phi are
heavy-tailed, so their variances are not compared.
"""

from configs import common

SECONDS = {"tiny": 5, "small": 20, "paper": 35}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    config = common.figure(
        "mixit/sde_paths",
        arguments,
        name="sde_paths",
        length=4,
        widths=(50, 200, 500),
        times=(0.25, 0.5, 1.0),
        paths=5_000,
        steps=150,
        samples=5_000,
    )
    if config.arguments.scale == "tiny":
        config.figure.update(widths=(20, 40), paths=500, steps=40, samples=500)
    elif config.arguments.scale == "paper":
        config.figure.update(paths=20_000, steps=300, samples=20_000)
    return config
