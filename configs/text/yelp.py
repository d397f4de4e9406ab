r"""Which parts must be trained to judge reviews? (MixiT papers, Table 1, Yelp; Table 5, heads)

    python experiments/run.py --config=configs/text/yelp.py:variant=mixit,scale=tiny

variant  standard | frozen_qk | frozen_mlp (queries and keys, or MLPs, keep their initial values) |
         mixit (fixed random mixing) | random (only embeddings are trained) |
         random_mixit (fixed random mixing; only embeddings and positions are trained) |
         random_mixit_fixed (fixed random mixing; only embeddings are trained)
sight    causal (every variant attends to earlier tokens) | both (to the whole text) |
         authors (as in their code: MixiT to the whole text, all others to earlier tokens)
preset   paper (the paper's text) | authors (the authors' code)

scale  sizes                                   time                expected test accuracy
tiny   reversed texts, width 64                20 CPU seconds      0.6 to 0.9; a bag of words 0.5
small  reversed texts, width 64, 3 seeds,      10 CPU minutes      Standard 0.79, MixiT 0.49
       3 learning rates
paper  Yelp reviews, 4 layers, width 1024,     hours on a GPU      published: Standard 90.6 %,
       256 tokens                                                  Frozen-QK 90.9 %, MixiT 92.6 %

The tiny and small scales need no file. Half of the texts, drawn from the packaged chain, are
reversed, and the label is whether a text is reversed. A bag of words has no information about it.
Prepare the Yelp reviews by

    python experiments/prepare.py --dataset yelp --tokenizer LLAMA_TOKENIZER.json \
        --out runs/data/yelp-llama

with a tokenizer.json of Llama 3.2, which you download (docs/data.md). The published comparison is
unfair, because only MixiT reads the whole text: sight=authors repeats it, sight=both and
sight=causal treat all variants alike. For Table 5 set --config.model.heads to 4, 16, 64 or 256. The
class is read from the last token that is not padding.
"""

from configs import common

SECONDS = {"tiny": 20, "small": 600, "paper": 6 * 3600}
SIGHTS = ("causal", "both", "authors")


def get_config(arg: str = ""):
    arguments = common.parse(
        arg,
        variant=(*common.VARIANTS, *common.FIXED_POSITIONS),
        sight=SIGHTS,
        scale=common.SCALES,
        preset=common.PRESETS,
    )
    config = common.training("text/yelp", arguments)
    config.task = common.prepared_text("document_class", documents=True, window=64)
    common.decoder(config, width=64, layers=2, heads=4)
    if arguments["scale"] == "tiny":
        config.task.window = 32
        config.data.update(test_size=200, validation_size=200)
        config.optim.learning_rate = (3e-3,)
        config.train.update(batch_size=32, steps=300, eval_every=100)
    elif arguments["scale"] == "small":
        config.data.update(test_size=200, validation_size=200)
        config.n_seeds = 3
        config.optim.learning_rate = (1e-3, 3e-3, 1e-2)
        config.train.update(batch_size=64, steps=600, eval_every=100)
    else:
        config.task.update(tokens="yelp-llama", window=256)
        common.decoder(config, width=1024, layers=4, heads=16)
        config.data.update(test_size=38_000, validation_size=5_000)
        config.optim.update(learning_rate=(1e-3, 5e-4, 1e-4), schedule="linear", warmup=500)
        config.optim.labels = dict(train=common.adamw(weight_decay=0.01))
        config.train.update(batch_size=256, steps=10_000, log_every=50, eval_every=1_000)
        config.n_seeds = 3
    config.model.update(name="classifier", pool="last")
    mixit = config.model.mixer == "mixit"
    sight = arguments["sight"]
    config.model.causal = sight == "causal" or (sight == "authors" and not mixit)
    common.keep_head_trained(config)
    return config
