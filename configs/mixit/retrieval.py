"""Which parts of a transformer must be trained for retrieval? (MixiT papers, Table 2, Figure 2)

    python experiments/run.py --config=configs/mixit/retrieval.py:variant=frozen_qk,scale=small

variant  standard | frozen_qk | frozen_mlp (queries and keys, or MLPs, keep their initial values) |
         mixit (fixed random mixing) | random (only embeddings are trained) |
         random_mixit (fixed random mixing; only embeddings and positions are trained)
preset   paper (the paper's text) | authors | authors_deep (the authors' code; configs/common.py)

scale  sizes                                 time               expected test accuracy
tiny   width 64, up to 6 pairs, 32 symbols,  15 CPU seconds     Standard 99 %, Frozen-QK 98 %
       one seed
small  width 64, up to 8 pairs, 64 symbols,  1 to 2 CPU min     Standard, Frozen-MLP, Frozen-QK
       3 seeds, 2 learning rates             (MixiT 10)         99.9 %; MixiT near the guess,
                                                                60 % after 16,000 steps
paper  width 1024, up to 30 pairs, 256       hours on a GPU     published: Standard 100 %,
       symbols, 40,000 examples                                 Frozen-MLP 100 %,
                                                                Frozen-QK 97.0 %, MixiT 11.2 %

A context is a list of keys with values, and the query repeats one key. The baseline
`in_context_guess` guesses one of the values in the context. It scores 44.5 % with up to 6 pairs,
37.4 % with 8 and 13.3 % with 30. A model at this baseline copies but does not retrieve; MixiT's
published 11.2 % is below it. `accuracy/pairs=4` is the accuracy on contexts with four pairs.

Frozen-QK needs a higher learning rate than Standard (1e-2 against 3e-3). With the same rate for all
variants their order can be reversed. Validation data therefore choose the rate of each variant.
"""

from configs import common

SECONDS = {"tiny": 15, "small": 120, "paper": 3 * 3600}


def get_config(arg: str = ""):
    arguments = common.parse(
        arg, variant=(*common.VARIANTS,), scale=common.SCALES, preset=common.PRESETS
    )
    config = common.training("mixit/retrieval", arguments)
    common.set_split(config)
    config.task = dict(name="retrieval", max_pairs=8, vocab=64, format="authors")
    common.decoder(config, width=64, layers=2, heads=4)
    config.train.target = 0.999
    if config.arguments.scale == "tiny":
        config.task.update(max_pairs=6, vocab=32)
        config.train.update(batch_size=64, steps=400, eval_every=50, target=0.99)
        rate = 1e-2 if config.arguments.variant == "frozen_qk" else 3e-3
        config.optim.learning_rate = (rate,)
    elif config.arguments.scale == "small":
        config.n_seeds = 3
        config.data.test_size = 4000
        common.set_budget(
            config, 1000, (3e-3, 1e-2), mixing_steps=4000, mixing_rates=(1e-3, 3e-3, 1e-2)
        )
    elif config.arguments.scale == "paper":
        # In the authors' code, which gave the published numbers, queries and keys have different
        # symbols.
        format = "paper" if config.arguments.preset == "paper" else "authors"
        config.task.update(max_pairs=30, vocab=256, format=format)
        common.decoder(config, width=1024, layers=2, heads=4)
        config.data.update(train_size=40_000, test_size=4_000, validation_size=1_000)
        config.n_seeds = 3
        config.train.update(batch_size=1024, steps=10_000, log_every=50, eval_every=500)
        config.optim.update(learning_rate=(1e-3, 5e-4, 1e-4), warmup=500)
    return config
