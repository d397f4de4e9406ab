r"""Do attention and the feed-forward layer need equally many samples to predict the noise?

    python experiments/run.py --config=configs/associations/samples.py:scale=small

scale  sizes                                        time            expected result
tiny   8 and 16 symbols, up to 64 samples,          10 CPU seconds  none: a test run
       2 seeds
small  16 to 128 symbols, up to 512 samples,        2 CPU minutes   both need about 3 samples
       8 seeds
paper  the same as small                            2 CPU minutes   both need about 3 samples

Both layers make one gradient step on the given number of samples. The samples suffice if the margin
of the noise, its logit minus the largest other logit, reaches half of its value in Theorem 1 (arXiv
2406.03068). After that theorem the paper observes that the feed-forward layer needs a constant
number of samples, and attention a number that grows like the number of symbols. A sequence has four
times as many tokens as there are symbols.
"""

from configs import common

SECONDS = {"tiny": 10, "small": 120, "paper": 120}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    tiny = arguments["scale"] == "tiny"
    config = common.figure(
        "associations/samples",
        arguments,
        name="associations_samples",
        vocabularies=(8, 16) if tiny else (16, 32, 64, 128),
        samples=(2, 8, 64) if tiny else (1, 2, 4, 8, 16, 32, 64, 128, 512),
        alpha=0.5,
        trials=2 if tiny else 8,
    )
    config.n_seeds = 2 if tiny else 8
    return config
