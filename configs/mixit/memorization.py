"""Memorisation (MixiT papers, Table 1): which parts are enough to memorise a table?

    python experiments/run.py --config=configs/mixit/memorization.py:variant=mixit,scale=small

variant  standard | frozen_qk | frozen_mlp | mixit | random | random_mixit
preset   paper (the text) | authors | authors_deep (their code; its biases give Table 4's counts)

scale  what                            time                 expected accuracy
tiny   16 x 16 entries, n=64           15 CPU seconds       Standard 100 %, MixiT 100 %
small  64 x 64 entries, n=64, 3 seeds  2 to 3 CPU minutes   MixiT above 90 %
paper  512 x 512 entries, n=1024      hours on a GPU       100 % for all three (Table 1)

The accuracy is that on the table itself. `bits_per_parameter` is the paper's measure, size^2
log2(size) accuracy / trained parameters. `bits_per_parameter_by_loss` uses the cross-entropy
instead, the bits that a code for the table would save. The published table needs .07 bits of each
trained parameter, the small one .17 to .50. Every variant but random_mixit learns it, so the bits
measure the size of the table and not the capacity, which configs/mixit/capacity.py measures
(Table 4). --config.model.width=24 --config.model.mlp_width=96 needs more bits per parameter.
"""

from configs import common

SECONDS = {"tiny": 15, "small": 180, "paper": 3 * 3600}


def get_config(arg: str = ""):
    arguments = common.parse(
        arg, variant=(*common.VARIANTS,), scale=common.SCALES, preset=common.PRESETS
    )
    config = common.training("mixit/memorization", arguments)
    config.task = dict(name="memorization", symbols=16, table_seed=0)
    common.decoder(config, width=64, layers=2, heads=4)
    config.optim.labels.train.weight_decay = 1e-4
    config.optim.learning_rate = (5e-3,)
    if config.arguments.scale == "tiny":
        config.train.update(batch_size=256, steps=300, eval_every=50, target=0.999)
    elif config.arguments.scale == "small":
        config.task.symbols = 64
        config.n_seeds = 3
        config.train.update(batch_size=512, steps=1000, target=0.999)
        common.embeddings_want_more(config)
    elif config.arguments.scale == "paper":
        config.task.symbols = 512
        common.decoder(config, width=1024, layers=2, heads=4)
        config.train.update(batch_size=256, steps=10_000, log_every=50, eval_every=500)
        config.optim.update(learning_rate=(1e-3, 5e-4, 1e-4), warmup=500)
    return config
