"""Can frozen or fixed attention follow repeated references? (k-hop, MixiT papers, Table 2)

    python experiments/run.py --config=configs/mixit/hops.py:variant=frozen_qk,scale=small

variant  standard | frozen_qk | frozen_mlp (queries and keys, or MLPs, keep their initial values) |
         mixit (fixed random mixing) | random (only embeddings are trained) |
         random_mixit (fixed random mixing; only embeddings and positions are trained)
preset   paper (the paper's text) | authors | authors_deep (the authors' code; configs/common.py)

scale  sizes                                 time               expected test accuracy
tiny   at most 1 hop, 20 tokens, width 32    20 CPU seconds     above the trivial predictors
small  at most 1 hop, 40 tokens, width 64,   some CPU minutes   Standard 99.9 %, Frozen-QK 99.5 %,
       3 seeds                                                  MixiT 76 % (trivial: 69 %)
paper  at most 16 hops, 99 tokens,           hours on a GPU     published: Standard 99.99 %,
       width 512, 5 layers                                      Frozen-MLP 99.89 %,
                                                                Frozen-QK 96.73 %, MixiT 48.58 %

One hop finds the last earlier occurrence of a letter and returns the letter after it. Every
position is scored, so trivial predictors score high. At the paper's sizes, a predictor that knows
only the number of hops and the position scores 42.2 %. One that also knows the current letter
scores 49.3 %. MixiT's published 48.58 % lies between them. `accuracy_existing` excludes questions
whose answer is "no such letter".

At small scale MixiT reaches 86 % with --config.train.steps=8000. A single hop needs no composition
of layers. For a task that does, add --config.task.max_hops=4 --config.model.layers=4
--config.train.steps=6000 and read `accuracy_existing/hops=4`.
"""

from configs import common

SECONDS = {"tiny": 20, "small": 180, "paper": 3 * 3600}


def get_config(arg: str = ""):
    arguments = common.parse(
        arg, variant=(*common.VARIANTS,), scale=common.SCALES, preset=common.PRESETS
    )
    config = common.training("mixit/hops", arguments)
    common.set_split(config)
    config.task = dict(name="hops", max_hops=1, letters=4, tokens=40)
    config.train.target = 0.999
    if config.arguments.scale == "tiny":
        config.task.tokens = 20
        common.decoder(config, width=32, layers=2, heads=4)
        config.train.update(batch_size=32, steps=200)
        config.optim.learning_rate = (5e-3,)
        config.data.update(test_size=200, validation_size=200)
    elif config.arguments.scale == "small":
        common.decoder(config, width=64, layers=2, heads=4)
        config.n_seeds = 3
        config.data.update(test_size=2000, validation_size=500)
        config.train.batch_size = 48
        common.set_budget(
            config, 600, (3e-3, 1e-2), mixing_steps=2000, mixing_rates=(1e-3, 3e-3, 1e-2)
        )
    elif config.arguments.scale == "paper":
        config.task.update(max_hops=16, tokens=99)
        common.decoder(config, width=512, layers=5, heads=8)
        config.data.update(train_size=100_000, test_size=1_000)
        config.n_seeds = 3
        config.train.update(batch_size=128, steps=5_000, log_every=50, eval_every=500)
        config.optim.update(learning_rate=(1e-4, 5e-4), warmup=500)
    return config
