r"""Attention and token similarity at initialisation, which frozen parts keep.

    python experiments/run.py --config=configs/mixit/initialisation.py:variant=frozen_qk,scale=small
    python experiments/run.py --config=configs/mixit/initialisation.py \
        --config.model.qk_init_std=0.02

variant  standard | frozen_qk | frozen_mlp | mixit | random | random_mixit
preset   paper (the text) | authors | authors_deep (their code)

scale    what                            time           expected numbers
tiny     L=2, n=64, 2 seeds              5 CPU seconds  attention entropy 0.85 of uniform
small    L=8, n=64, 10 seeds             1 CPU minute   cosine of tokens grows with depth
paper    L=12, n=512, T=256, 10 seeds    minutes

`attention_entropy` is 1 for uniform attention. With qk_init_std = 0.02 at n = 64 it is 1.00: frozen
queries and keys then cannot tell tokens apart, so Frozen-QK fails at that scale (40 % instead of
99.9 % on retrieval). `token_covariance` is that of version B's Table 6 (raw); `token_cosine` does
not depend on the scale.
"""

from configs import common

SECONDS = {"tiny": 5, "small": 60, "paper": 180}


def get_config(arg: str = ""):
    arguments = common.parse(
        arg, variant=(*common.VARIANTS,), scale=common.SCALES, preset=common.PRESETS
    )
    config = common.training("mixit/initialisation", arguments)
    config.recipe = "measure"
    for section in ("optim", "train", "devices", "unfreeze"):
        del config[section]
    config.task = dict(name="retrieval", max_pairs=8, vocab=64, format="authors")
    width, layers, config.n_seeds = {
        "tiny": (64, 2, 2),
        "small": (64, 8, 10),
        "paper": (512, 12, 10),
    }[config.arguments.scale]
    if config.arguments.scale == "paper":
        config.task.update(max_pairs=126, vocab=1024)
    config.data.test_size = 200
    common.decoder(config, width=width, layers=layers, heads=8 if width == 512 else 4)
    config.model.update(dtype="float64", param_dtype="float64")
    # (captured name, statistic) pairs
    statistics = [("states", "token_cosine"), ("states", "token_covariance")]
    if config.model.mixer == "softmax":
        statistics.append(("attn/weights", "attention_entropy"))
    config.measure = tuple(
        (f"block_{i}/{name}", statistic) for name, statistic in statistics for i in range(layers)
    )
    return config
