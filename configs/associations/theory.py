r"""Do the theorems and lemmas of the associations paper agree with measurements? (arXiv 2406.03068)

    python experiments/run.py --config=configs/associations/theory.py:scale=small

                                                                 expected numbers of statements
scale  sizes                                    time             hold   corrected   fail
tiny   16 symbols, 64 tokens (too few for the   12 CPU seconds   37     12          10
       limits)
small  64 symbols, 256 tokens, 4,096 samples    25 CPU seconds   39     15          5
paper  the same with 8 times the samples        CPU minutes      39     15          5

Each row of the result compares one statement with a measurement. The statement holds as printed, or
with a corrected constant, or it fails. docs/associations.md explains those that do not hold.
Statements about how often a token occurs have their own sizes (1,000 symbols at small scale).

The tolerance is 2 % for limits and 4 % for Theorem 1. For Theorem 2, which is tested with 256
symbols, it is 12 %: the formulas of the theorem have errors of order 1 / symbols. In the
statements, T is the number of tokens, N the number of symbols without the noise, and alpha the
probability of the noise.
"""

from configs import common

SECONDS = {"tiny": 12, "small": 25, "paper": 180}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    config = common.figure(
        "associations/theory",
        arguments,
        name="associations_theory",
        alpha=0.3,
        N=64,
        T=256,
        samples=4096,
        trials=16,
        counts_N=1000,  # N and T of the statements about how often a token occurs
        counts_T=5000,
        ordering_N=256,  # N of Theorem 2
        time=1e6,  # of the gradient flow, at which Theorem 3 is tested
        tolerance=0.02,
    )
    if config.arguments.scale == "tiny":
        config.figure.update(N=16, T=64, samples=512, trials=4, counts_T=3000)
        config.figure.ordering_N = 64
    elif config.arguments.scale == "paper":
        config.figure.update(trials=128, counts_N=4000, counts_T=20000)
    return config
