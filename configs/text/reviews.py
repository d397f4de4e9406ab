r"""Sentiment of film reviews with frozen parts (MixiT papers, Table 1 and Table 5 on other data).

    python experiments/run.py --config=configs/text/reviews.py:variant=mixit,scale=small

variant  standard | frozen_qk | frozen_mlp | mixit | random | random_mixit, which trains its
         positions, | random_mixit_fixed, which does not
sight    causal | both: every variant attends to earlier tokens, or to the whole text
tokens   the prepared folder, a path or a name in runs/data
preset   paper (the text) | authors (their code)

scale  what                                       time                expected test accuracy
tiny   texts of the packaged chain, n=16          20 CPU seconds      it runs
small  10,605 reviews, n=32, 5 seeds              1 CPU minute        a word regression 0.77
paper  the same, 4 layers, n=1024, 3 rates        an hour on a GPU    not run

The data are 10,605 sentences of film reviews (Pang and Lee) with the mean polarity that 20 people
gave them (Hutto and Gilbert, ICWSM 2014). The file is in the source package of vaderSentiment 3.3.2
(`pip download --no-binary :all: --no-deps vaderSentiment==3.3.2`), among the additional resources
of the ICWSM paper, as movieReviewSnippets_GroundTruth.txt. Make it a table with the columns
polarity and text, and prepare it once:

    python experiments/prepare.py --dataset table:movie_reviews.tsv --text text \
        --label 'polarity>0' --validation 0.1 --test 0.2 --tokenizer bpe:4096 \
        --out runs/data/movie-reviews-bpe4096

Training stops when no seed's validation has improved four times in sequence. The baseline
`word_regression` is a logistic regression on the words of a review, fitted on the same training
part.
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
