r"""The lemmas, the assumptions and the first two theorems of the associations paper, one by one.

    python experiments/run.py --config=configs/associations/lemmas.py:scale=small

scale  what                                                     time             expected
tiny   N = 16, 2,048 samples                                    10 CPU seconds   it runs
small  N = T/4 = 64, 65,536 samples, 4 trials; counts N = 1000  55 CPU seconds   see below
paper  the same, 16 trials                                      3 CPU minutes    the same

Each row is a claim of the paper. Theorem 1 is tested at its own error, which its proof takes from
Lemmas D.1 and D.2: both margins are within it for the inputs of the proof (current token), and
attention's is outside for the inputs of the statement (current and previous token), where it is
twice the printed one. Theorem 2 (4) is tested for several free sizes (beta1, beta2) of the paper's
W_V, which decide its sign, and for the exact W_V, which has the wrong sign unless ybar differs from
the trigger. The printed variances of Table 3 are too large in rows 4 to 10, so that Lemma D.2's
bound stays true. G.1 (iii): at a given time alpha decides whether the noise has the smallest
singular value; at late times it has the largest for every alpha if n >= 4.
"""

from configs import common

SECONDS = {"tiny": 10, "small": 55, "paper": 180}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    config = common.figure(
        "associations/lemmas",
        arguments,
        name="associations_lemmas",
        alpha=0.3,
        delta=0.05,
        N=64,
        T=256,
        samples=65_536,
        trials=4,
        counts_N=1000,
        counts_T=5000,
        ordering_N=256,
        betas=((1.0, 0.0), (2.0, 1.0), (3.0, 1.0), (5.0, 1.0)),
    )
    if config.arguments.scale == "tiny":
        config.figure.update(N=16, T=64, samples=2048, counts_N=100, counts_T=500, ordering_N=32)
    elif config.arguments.scale == "paper":
        config.figure.trials = 16
    return config
