r"""Does a low rank remove the noise with random embeddings too? (arXiv 2406.03068, Figure 18)

    python experiments/run.py --config=configs/associations/random_embeddings.py:scale=small

scale  sizes                                 time             expected loss on clean labels
tiny   3 inputs, width 12, 3 seeds,          5 CPU seconds    falls in training
       200 steps
small  3 inputs, widths 8 and 12,            10 CPU seconds   full rank .0316, rank 2 .012
       20 seeds, 2,000 steps
paper  the same with 4,000 steps             20 CPU seconds   rank 2 below full rank in all runs

The paper claims that truncating the weight matrix W to rank 2 lowers the loss on clean labels far
below the 0.03 = -log(1 - alpha) of the full matrix. Its text calls the figure Figure 5 and gives
neither the learning rate nor the number of steps. Here the rate is 1. With 0.1, only 70 % (width
12) and 40 % (width 8) of the runs show the effect after 4,000 steps.
"""

from configs import common

SECONDS = {"tiny": 5, "small": 10, "paper": 20}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    config = common.figure(
        "associations/random_embeddings",
        arguments,
        name="associations_embeddings",
        n=3,  # inputs
        alpha=0.03,
        dimensions=(8, 12),
        ranks=(1, 2, 3),
        steps=2000,
        learning_rate=1.0,
    )
    config.n_seeds = 20
    if config.arguments.scale == "tiny":
        config.figure.update(dimensions=(12,), steps=200)
        config.n_seeds = 3
    elif config.arguments.scale == "paper":
        config.figure.steps = 4000
    return config
