"""Can fixed random mixing decide whether parentheses are balanced? (Dyck-1; MixiT papers, Table 1)

    python experiments/run.py --config=configs/mixit/dyck.py:variant=mixit,scale=small

variant  standard | frozen_qk | frozen_mlp (queries and keys, or MLPs, keep their initial values) |
         mixit (fixed random mixing) | random (only embeddings are trained) |
         random_mixit (fixed random mixing; only embeddings and positions are trained)
preset   paper (the paper's text) | authors | authors_deep (the authors' code; configs/common.py)

scale  sizes                                 time               expected test accuracy
tiny   up to 6 pairs, width 32               20 CPU seconds     above the trivial predictors
small  up to 20 pairs, width 64, 16 heads,   1 to 3 CPU min     Standard and Frozen-QK 99.9 %
       3 seeds                               (MixiT 20)         (trivial predictor: 98 %)
paper  up to 40 pairs, width 512, 4 layers,  hours on a GPU     published: Standard 95.8 %,
       64 heads, 3 seeds                                        Frozen-QK 97.4 %, MixiT 96.2 %

Counting is almost enough. At 40 pairs, a predictor that compares the numbers of "(" and ")" scores
93.5 %. With the first and the last symbol as well, it scores 97.8 %. The published accuracies are
no higher. `accuracy_hard` is the accuracy on unbalanced strings with as many "(" as ")", where
counting is always wrong.

If the paper's "length 40" counts parentheses, it means 20 pairs: --config.task.pairs=20. With the
authors' split (--config.data.split=redraw) short strings occur only in the test set, and Frozen-QK
ends at 95 ± 2 % (docs/mixit.md). Metrics such as `accuracy/length=1-2` give the accuracy by length.
"""

from configs import common

SECONDS = {"tiny": 20, "small": 180, "paper": 3 * 3600}


def get_config(arg: str = ""):
    arguments = common.parse(
        arg, variant=(*common.VARIANTS,), scale=common.SCALES, preset=common.PRESETS
    )
    config = common.training("mixit/dyck", arguments)
    common.set_split(config)
    config.task = dict(name="dyck", pairs=20)
    config.train.target = 0.9999
    if config.arguments.scale == "tiny":
        config.task.pairs = 6
        common.decoder(config, width=32, layers=2, heads=4)
        config.train.update(batch_size=64, steps=200)
        config.optim.learning_rate = (5e-3,)
        # There are only 8,190 strings of this length: the held-out part must stay small.
        config.data.update(test_size=200, validation_size=100)
    elif config.arguments.scale == "small":
        common.decoder(config, width=64, layers=2, heads=16)
        config.n_seeds = 3
        config.data.test_size = 4000
        config.train.batch_size = 64
        common.set_budget(
            config, 1000, (1e-3, 1e-2), mixing_steps=4000, mixing_rates=(1e-3, 3e-3, 1e-2)
        )
    elif config.arguments.scale == "paper":
        config.task.pairs = 40
        common.decoder(config, width=512, layers=4, heads=64)
        config.data.update(train_size=100_000, test_size=4_000)
        config.n_seeds = 3
        config.train.update(batch_size=512, steps=10_000, log_every=50, eval_every=500)
        config.optim.update(learning_rate=(1e-3, 5e-4, 1e-4), warmup=500)
    return config
