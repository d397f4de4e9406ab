r"""Which parts must be trained to judge film reviews? (MixiT papers, Tables 1 and 5, on other data)

    python experiments/run.py --config=configs/text/reviews.py:variant=mixit,scale=small

variant  standard | frozen_qk | frozen_mlp (queries and keys, or MLPs, keep their initial values) |
         mixit (fixed random mixing) | random (only embeddings are trained) |
         random_mixit (fixed random mixing; only embeddings and positions are trained) |
         random_mixit_fixed (fixed random mixing; only embeddings are trained)
sight    causal (every variant attends to earlier tokens) | both (to the whole text)
tokens   the prepared folder: a path or a name in runs/data
preset   paper (the paper's text) | authors (the authors' code)

scale  sizes                                      time                expected test accuracy
tiny   texts of the packaged chain, width 16      20 CPU seconds      none: a test run
small  10,605 reviews, width 32, 5 seeds          1 CPU minute        a word regression has 0.77
paper  the same, 4 layers, width 1024,            an hour on a GPU    not yet run
       3 learning rates

A review is a sentence (Pang and Lee), its label the sign of the mean rating of 20 people (Hutto and
Gilbert, ICWSM 2014). The data are in the source package of vaderSentiment 3.3.2: download it with
`pip download --no-binary :all: --no-deps vaderSentiment==3.3.2`. The sentences and ratings are in
movieReviewSnippets_GroundTruth.txt, one of the additional resources of the ICWSM paper. Make this
file a table with the columns polarity and text, and prepare it once:

    python experiments/prepare.py --dataset table:movie_reviews.tsv --text text \
        --label 'polarity>0' --validation 0.1 --test 0.2 --tokenizer bpe:4096 \
        --out runs/data/movie-reviews-bpe4096

Training stops after four evaluations in a row in which no seed has a new best validation score. The
baseline `word_regression` is a logistic regression on the words of a review, fitted on the same
training data.
"""

from configs import common
from configs.arguments import FreeText

SECONDS = {"tiny": 20, "small": 60, "paper": 3600}
REVIEWS = ("movie-reviews-bpe4096", "32fb3d5e1740")


def get_config(arg: str = ""):
    arguments = common.parse(
        arg,
        variant=(*common.VARIANTS, *common.FIXED_POSITIONS),
        sight=("causal", "both"),
        tokens=FreeText(REVIEWS[:1]),
        scale=common.SCALES,
        preset=common.PRESETS,
    )
    config = common.training("text/reviews", arguments)
    is_default = arguments["tokens"] == REVIEWS[0]
    fingerprint = REVIEWS[1] if is_default else ""
    config.task = common.prepared_text(
        "document_class", arguments["tokens"], fingerprint, documents=True, window=48
    )
    common.decoder(config, width=32, layers=2, heads=4)
    config.optim.schedule = "constant"
    config.train.patience = 4
    if arguments["scale"] == "tiny":
        config.task.update(tokens="", fingerprint="", window=16)
        common.decoder(config, width=16, layers=1, heads=2)
        config.data.update(test_size=100, validation_size=100)
        config.train.update(batch_size=16, steps=60, eval_every=20)
    elif arguments["scale"] == "small":
        config.n_seeds = 5
        config.data.update(test_size=2_100, validation_size=1_064)
        config.train.update(batch_size=32, steps=2_000, eval_every=50)
        is_random = arguments["variant"].startswith("random")  # only its embeddings are trained
        config.optim.learning_rate = (3e-2,) if is_random else (3e-3,)
    else:
        config.task.window = 64
        common.decoder(config, width=1024, layers=4, heads=16)
        config.n_seeds = 3
        config.data.update(test_size=2_100, validation_size=1_064)
        config.optim.learning_rate = (1e-3, 5e-4, 1e-4)
        config.train.update(batch_size=256, steps=2_000, eval_every=50)
    config.model.update(name="classifier", pool="last", causal=arguments["sight"] == "causal")
    common.keep_head_trained(config)
    return config
