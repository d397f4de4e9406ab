"""Bits stored by each part: a table too large for any variant (MixiT papers, Table 4).

    python experiments/run.py --config=configs/mixit/capacity.py:variant=standard,scale=small

variant  standard | frozen_qk | frozen_mlp | mixit | random | random_mixit
preset   paper (the text) | authors | authors_deep (their code; its biases give Table 4's counts)

scale  what                            time                expected bits per trained parameter
                                                           (Standard, Frozen-QK, Frozen-MLP, MixiT)
tiny   16 x 16 entries, n=8            15 CPU seconds      it runs
small  96 x 96 entries, n=16, 3 seeds  5 CPU minutes       2.3, 2.3, 1.4, 2.0
paper  512 x 512 entries, n=128        an hour on a GPU    2.98, 2.25, 1.13 and 2.18

The task is that of configs/mixit/memorization.py, with so few parameters that the accuracy stays
below 100 %: only then do bits per parameter measure the capacity. The small table needs 4.2 bits
for each parameter of Standard, the paper's 3.0. Paper scale is that of Table 4, n = 128.
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
        common.embeddings_want_more(config)
    elif config.arguments.scale == "paper":
        common.decoder(config, width=128, layers=2, heads=4)
        config.train.update(batch_size=32_768)
        config.optim.learning_rate = (5e-3,)
    return config
