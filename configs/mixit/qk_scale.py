"""The scale of frozen queries and keys decides whether random attention can look things up.

    python experiments/run.py --config=configs/mixit/qk_scale.py:std=0.02,scale=small

std  fan_in (1/sqrt(n)) | 0.02 | 0.05 | 0.1 | 0.25 | 0.5: the standard deviation of W_q and W_k;
     every other weight starts with 1/sqrt(inputs)

scale  what                                 time                expected test accuracy
tiny   n=64, M=6, V=32, one seed            15 CPU seconds      fan_in 98 %
small  n=64, M=8, V=64, 3 seeds, 2 rates    1 to 2 CPU minutes  fan_in 99.9 %, 0.02: 40.4 %
paper  n=1024, M=30, V=256, 40,000 examples hours on a GPU      0.02: 97.0 % (Table 2)

Frozen-QK on needle retrieval. At initialisation the logits have a standard deviation of n std^2: 1
for fan_in at every width, but for the authors' 0.02 only 0.026 at n = 64 and 0.41 at n = 1024.
Attention with such small logits is uniform, and only the norms' gains can sharpen it. With logits
of 4 (std = 0.25 at n = 64) each query attends to one random token. The papers print no scale. A
guess among the values of the context scores 37.4 % at small: with 0.02 the model copies (in_context
1) and does not look up. Another measurement (one rate, one seed, 500 steps) gave 42 % with 0.02,
98 % with fan_in and 51 % with 0.25.
"""

from configs import common

SECONDS = {"tiny": 15, "small": 120, "paper": 3 * 3600}

SCALES_OF_QK = ("fan_in", "0.02", "0.05", "0.1", "0.25", "0.5")


def get_config(arg: str = ""):
    arguments = common.parse(arg, std=SCALES_OF_QK, scale=common.SCALES)
    arguments |= dict(variant="frozen_qk", preset="paper")
    config = common.training("mixit/qk_scale", arguments)
    common.split(config)
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
