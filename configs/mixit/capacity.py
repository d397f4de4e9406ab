"""Measures how many bits each variant stores per trained parameter (MixiT papers, Table 4).

    python experiments/run.py --config=configs/mixit/capacity.py:variant=standard,scale=small

variant  standard | frozen_qk | frozen_mlp (queries and keys, or MLPs, keep their initial values) |
         mixit (fixed random mixing) | random (only embeddings are trained) |
         random_mixit (fixed random mixing; only embeddings and positions are trained)
preset   paper (the paper's text) | authors | authors_deep (the authors' code, whose biases give
         the parameter counts of Table 4)

scale  sizes                                 time              expected bits per trained parameter
tiny   table of 16 x 16 entries, width 8     15 CPU seconds    none: a test run
small  96 x 96 entries, width 16, 3 seeds    5 CPU minutes     Standard 2.3, Frozen-QK 2.3,
                                                               Frozen-MLP 1.4, MixiT 2.0
paper  512 x 512 entries, width 128          an hour on a GPU  published: Standard 2.98, Frozen-QK
       (the sizes of Table 4)                                  2.25, Frozen-MLP 1.13, MixiT 2.18

The task is that of configs/mixit/memorization.py, but the networks are too small to learn the whole
table. Only an accuracy below 100 % shows how much a network can store. The complete small table
would need 4.2 bits per parameter of Standard, the complete table of the paper 3.0.
"""

from configs import common
from configs.mixit import memorization

SECONDS = {"tiny": 15, "small": 300, "paper": 3600}


def get_config(arg: str = ""):
    config = memorization.get_config(arg)
    config.name = "mixit/capacity"
    if config.arguments.scale == "tiny":
        common.decoder(config, width=8, layers=2, heads=4)
    elif config.arguments.scale == "small":
        common.decoder(config, width=16, layers=2, heads=4)
        config.task.symbols = 96
        config.train.update(batch_size=1024, steps=5000, eval_every=500)
        config.optim.learning_rate = (1e-2, 2e-2, 5e-2, 1e-1)
        common.raise_rates_of_embeddings(config)
    elif config.arguments.scale == "paper":
        common.decoder(config, width=128, layers=2, heads=4)
        config.train.update(batch_size=32_768)
        config.optim.learning_rate = (5e-3,)
    return config
