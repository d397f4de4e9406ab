"""Which parts of a transformer must be trained to memorise a table? (MixiT papers, Table 1)

    python experiments/run.py --config=configs/mixit/memorization.py:variant=mixit,scale=small

variant  standard | frozen_qk | frozen_mlp (queries and keys, or MLPs, keep their initial values) |
         mixit (fixed random mixing) | random (only embeddings are trained) |
         random_mixit (fixed random mixing; only embeddings and positions are trained)
preset   paper (the paper's text) | authors | authors_deep (the authors' code, whose biases give
         the parameter counts of Table 4)

scale  sizes                                       time               expected training accuracy
tiny   table of 16 x 16 entries, width 64          15 CPU seconds     Standard and MixiT 100 %
small  64 x 64 entries, width 64, 3 seeds          2 to 3 CPU min     MixiT above 90 %
paper  512 x 512 entries, width 1024               hours on a GPU     published: Standard, Frozen-QK
                                                                      and MixiT 100 %

The accuracy is that on the table itself. `bits_per_parameter` is the paper's measure: size^2
log2(size) times accuracy, divided by the number of trained parameters, for a table of size x size
entries. `bits_per_parameter_by_loss` uses the cross-entropy instead of the accuracy: the bits that
a code based on the network would save.

The networks are large for the table. At small scale the table needs .17 to .50 bits of each trained
parameter, in the paper .07. Every variant but random_mixit learns the small table, so here bits per
parameter measure the table and not the capacity, which configs/mixit/capacity.py measures. Narrower
networks, --config.model.width=24 --config.model.mlp_width=96, need more bits per parameter.
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
        common.raise_rates_of_embeddings(config)
    elif config.arguments.scale == "paper":
        config.task.symbols = 512
        common.decoder(config, width=1024, layers=2, heads=4)
        config.train.update(batch_size=256, steps=10_000, log_every=50, eval_every=500)
        config.optim.update(learning_rate=(1e-3, 5e-4, 1e-4), warmup=500)
    return config
