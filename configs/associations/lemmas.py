r"""Which lemmas and theorems of the associations paper hold as printed? (arXiv 2406.03068)

    python experiments/run.py --config=configs/associations/lemmas.py:scale=small

scale  sizes                                               time             expected result
tiny   16 symbols, 64 tokens, 2,048 samples                10 CPU seconds   none: a test run
small  64 symbols, 256 tokens, 65,536 samples, 4 trials    55 CPU seconds   the statements below
paper  the same with 16 trials                             3 CPU minutes    the statements below

Each row of the result compares one statement of the paper with a measurement. Statements about how
often a token occurs are tested with 1,000 symbols.

Theorem 1 is about the margins of the feed-forward layer and of attention: the logit of the noise
minus the largest other logit. The allowed error is that of the theorem's proof (Lemmas D.1 and
D.2). Both margins are within this error if the input is the current token, as in the proof. If the
input also has the previous token, as in the statement, the margin of attention is twice the printed
one.

For Theorem 2 (4) the sign depends on the free constants beta1 and beta2 of the paper's value
matrix. With the exact value matrix the sign is wrong unless the answer differs from the trigger.

Rows 4 to 10 of Table 3 print variances that are too large; the bound of Lemma D.2 stays true.
Theorem G.1 (iii) says which direction has the smallest singular value. At a given time this can be
the noise, depending on alpha. At late times the noise has the largest singular value for every
alpha if the input has n >= 4 values.
"""

from configs import common

SECONDS = {"tiny": 10, "small": 55, "paper": 180}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    config = common.figure(
        "associations/lemmas",
        arguments,
        name="associations_lemmas",
        alpha=0.3,  # probability of the noise
        delta=0.05,  # probability with which a bound may fail
        N=64,
        T=256,
        samples=65_536,
        trials=4,
        counts_N=1000,  # N and T of the statements about how often a token occurs
        counts_T=5000,
        ordering_N=256,  # N of Theorem 2
        # (beta1, beta2) of the value matrix in the proof of Theorem 2
        betas=((1.0, 0.0), (2.0, 1.0), (3.0, 1.0), (5.0, 1.0)),
    )
    if config.arguments.scale == "tiny":
        config.figure.update(N=16, T=64, samples=2048, counts_N=100, counts_T=500, ordering_N=32)
    elif config.arguments.scale == "paper":
        config.figure.trials = 16
    return config
