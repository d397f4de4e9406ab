r"""Figure 18 of the associations paper: a low rank forgets the noise, with random embeddings too.

    python experiments/run.py --config=configs/associations/random_embeddings.py:scale=small

scale  what                                              time             expected
tiny   n=3, d=12, 3 seeds, 200 steps                     5 CPU seconds    losses fall
small  n=3, d=8 and 12, 20 seeds, 2,000 steps            10 CPU seconds   full .0316, rank 2 .012
paper  the same, 4,000 steps                             20 CPU seconds   rank 2 below full, 100 %

The paper claims that truncating W to rank 2 lowers the loss on pure labels far below the 0.03 =
-log(1 - alpha) of the full W. Its text calls this Figure 5; its learning rate and number of steps
are not given: with 0.1 instead of 1 only 70 % (d=12) and 40 % (d=8) of the runs show it by 4,000.
"""

from configs import common

SECONDS = {"tiny": 5, "small": 10, "paper": 20}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    config = common.figure(
        "associations/random_embeddings",
        arguments,
        name="associations_embeddings",
        n=3,
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
