"""Does the scale of frozen queries and keys decide whether random attention can retrieve?

    python experiments/run.py --config=configs/mixit/qk_scale.py:std=0.02,scale=small

std  fan_in (1/sqrt(width)) | 0.02 | 0.05 | 0.1 | 0.25 | 0.5: the standard deviation of the query
     and key weights; all other weights start with 1/sqrt(inputs)

scale  sizes                                    time               expected test accuracy
tiny   width 64, up to 6 pairs, 32 symbols,     15 CPU seconds     98 % with fan_in
       one seed
small  width 64, up to 8 pairs, 64 symbols,     1 to 2 CPU min     99.9 % with fan_in,
       3 seeds, 2 learning rates                                   40.4 % with 0.02
paper  width 1024, up to 30 pairs, 256          hours on a GPU     published: 97.0 % (Table 2);
       symbols, 40,000 examples                                    the authors' code has 0.02

The run trains Frozen-QK, whose queries and keys keep their initial values, on retrieval. At
initialisation the logits of attention have a standard deviation of width x std^2: 1 for fan_in at
every width, but with 0.02 only 0.026 at width 64 and 0.41 at width 1024. Attention with such small
logits is nearly uniform, and only the gains of the norms can sharpen it. Logits of 4 (std=0.25 at
width 64) let each query attend to one random token.

The papers print no standard deviation of these weights. At small scale, guessing one of the values
in the context scores 37.4 %. With 0.02 the model copies values of the context (`in_context` is 1)
but does not find the right one. An earlier measurement with one learning rate, one seed and 500
steps gave 42 % with 0.02, 98 % with fan_in and 51 % with 0.25.
"""

from configs import common

SECONDS = {"tiny": 15, "small": 120, "paper": 3 * 3600}

QK_STANDARD_DEVIATIONS = ("fan_in", "0.02", "0.05", "0.1", "0.25", "0.5")


def get_config(arg: str = ""):
    arguments = common.parse(arg, std=QK_STANDARD_DEVIATIONS, scale=common.SCALES)
    arguments |= dict(variant="frozen_qk", preset="paper")
    config = common.training("mixit/qk_scale", arguments)
    common.set_split(config)
    config.task = dict(name="retrieval", max_pairs=8, vocab=64, format="authors")
    common.decoder(config, width=64, layers=2, heads=4)
    config.train.target = 0.999
    if config.arguments.scale == "tiny":
        config.task.update(max_pairs=6, vocab=32)
        config.train.update(batch_size=64, steps=400, eval_every=50, target=0.99)
        config.optim.learning_rate = (1e-2,)
    elif config.arguments.scale == "small":
        config.n_seeds = 3
        config.data.test_size = 4000
        config.optim.learning_rate = (3e-3, 1e-2)
    elif config.arguments.scale == "paper":
        config.task.update(max_pairs=30, vocab=256, format="paper")
        common.decoder(config, width=1024, layers=2, heads=4)
        config.data.update(train_size=40_000, test_size=4_000, validation_size=1_000)
        config.n_seeds = 3
        config.train.update(batch_size=1024, steps=10_000, log_every=50, eval_every=500)
        config.optim.update(learning_rate=(1e-3, 5e-4, 1e-4), warmup=500)
    config.model.qk_init_std = config.arguments.std
    return config
