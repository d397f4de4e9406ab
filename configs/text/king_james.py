r"""Which parts of a language model must be trained on the King James Bible? (MixiT papers, Table 3)

    python experiments/run.py --config=configs/text/king_james.py:variant=frozen_qk,scale=small

variant  standard | frozen_qk | frozen_mlp (queries and keys, or MLPs, keep their initial values) |
         mixit (fixed random mixing) | random (only embeddings are trained) |
         random_mixit (fixed random mixing; only embeddings and positions are trained) |
         random_mixit_fixed (fixed random mixing; only embeddings are trained)
tokens   the prepared folder: a path or a name in runs/data
preset   paper (the paper's text) | authors (the authors' code: biases, sink head, scalings)

scale  sizes                                 time               expected test loss (bits a byte)
tiny   the packaged chain, width 16          20 CPU seconds     none: a test run
small  BPE of 1,024 tokens, width 48,        5 CPU minutes      below that of a trigram
       3 seeds
paper  12 layers, width 512                  hours on a GPU     not yet run

The Bible has 4.1 MB, four times as many as the tiny Shakespeare of configs/text/lm.py. The program
`bible` of the Debian package bible-kjv-text prints it. Leave out the verse numbers, put a blank
line between chapters, and prepare the text once:

    python experiments/prepare.py --dataset text:king_james.txt --tokenizer bpe:1024 \
        --out runs/data/king-james-bpe1024

The learning rate is constant. Training stops after three evaluations in a row in which no seed has
a new lowest validation loss, at the latest after 2,500 steps.
"""

from configs import common
from configs.arguments import FreeText

SECONDS = {"tiny": 20, "small": 300, "paper": 6 * 3600}
KING_JAMES = ("king-james-bpe1024", "a21f5388d5bb")


def get_config(arg: str = ""):
    arguments = common.parse(
        arg,
        variant=(*common.VARIANTS, *common.FIXED_POSITIONS),
        tokens=FreeText(KING_JAMES[:1]),
        scale=common.SCALES,
        preset=common.PRESETS,
    )
    config = common.training("text/king_james", arguments)
    is_default = arguments["tokens"] == KING_JAMES[0]
    fingerprint = KING_JAMES[1] if is_default else ""
    config.task = common.prepared_text(
        "next_token", arguments["tokens"], fingerprint, window=64, batch_of=0
    )
    config.optim.schedule = "constant"
    config.train.patience = 3
    if arguments["scale"] == "tiny":
        config.task.update(tokens="", fingerprint="", window=16)
        common.decoder(config, width=16, layers=1, heads=2)
        config.data.update(test_size=100, validation_size=100)
        config.train.update(batch_size=16, steps=60, eval_every=20)
    elif arguments["scale"] == "small":
        common.decoder(config, width=48, layers=2, heads=4)
        config.data.update(test_size=1_000, validation_size=500)
        config.n_seeds = 3
        config.optim.learning_rate = (1e-2,)
        config.train.update(batch_size=16, steps=2_500, eval_every=250)
    else:
        config.task.window = 256
        common.decoder(config, width=512, layers=12, heads=8)
        config.data.update(test_size=260, validation_size=260)
        config.n_seeds = 3
        config.optim.learning_rate = (1e-3, 5e-4, 1e-4)
        config.train.update(batch_size=64, steps=20_000, eval_every=200)
    return config
