r"""Measures attention and token similarity at initialisation, a state that frozen parts keep.

    python experiments/run.py --config=configs/mixit/initialisation.py:variant=frozen_qk,scale=small
    python experiments/run.py --config=configs/mixit/initialisation.py \
        --config.model.qk_init_std=0.02

variant  standard | frozen_qk | frozen_mlp (queries and keys, or MLPs, keep their initial values) |
         mixit (fixed random mixing) | random (only embeddings are trained) |
         random_mixit (fixed random mixing; only embeddings and positions are trained)
preset   paper (the paper's text) | authors | authors_deep (the authors' code)

scale  sizes                                    time           expected result
tiny   2 layers, width 64, 2 seeds              5 CPU seconds  attention entropy .85
small  8 layers, width 64, 10 seeds             1 CPU minute   cosine grows with depth
paper  12 layers, width 512, 256 tokens,        minutes        the same
       10 seeds

`attention_entropy` is 1 for uniform attention. With queries and keys of standard deviation 0.02 at
width 64 it is 1.00: frozen attention cannot distinguish tokens. Frozen-QK then scores 40 % instead
of 99.9 % on retrieval. `token_covariance` is the measure of version B's Table 6. `token_cosine`
measures the same similarity independently of the length of the vectors.
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
