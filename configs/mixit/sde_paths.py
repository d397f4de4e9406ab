r"""Do deep random networks follow the covariance equation of the MixiT paper? (Theorem 2.1)

    python experiments/run.py --config=configs/mixit/sde_paths.py:scale=small

scale  sizes                                   time             expected distance of distributions
tiny   4 tokens, widths 20 and 40, 500 paths   5 CPU seconds    near .10, the sampling noise
small  4 tokens, widths 50, 200 and 500,       20 CPU seconds   below .033 at width 200
       5,000 paths
paper  the same with 20,000 paths of 300       35 CPU seconds   .005 to .009 at width 200
       steps

The paper claims that the distribution of Phi, the matrix of inner products of tokens, converges to
a stochastic differential equation as width and depth grow at a fixed ratio. The distance is that of
Kolmogorov and Smirnov: 0 for equal distributions. Width 50 is already within the sampling noise.

The distributions are those of the log-trace, the correlation of two tokens and the two largest
eigenvalues, at depth / width = .25, .5 and 1. Phi starts with 1 on its diagonal and .5 elsewhere.
Raw entries of Phi are heavy-tailed, so their variances are not compared.
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
