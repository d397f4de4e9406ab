r"""Does an encoder's initial regime decide how well it learns text? (arXiv 2505.24333, Figure 1f)

    python experiments/run.py --config=configs/text/masked.py:curve=trainable_2,scale=tiny

curve    rank_collapse: beta = 0.02, alpha_SA = 1     trainable_1.5, trainable_2: alpha_SA = 1.5, 2
         entropy_1, entropy_1.5, entropy_2: beta = 1.8 and 12 layers, alpha_SA = 1, 1.5, 2

scale  sizes                                   time            expected test loss (nats a token)
tiny   the packaged chain, 4 layers,           30 CPU seconds  below 3.4, the loss of token
       width 32                                                frequencies
small  tiny Shakespeare, BPE of 1,024          10 CPU minutes  trainable 5.06 and 4.96 ± .05,
       tokens, width 64, 3 seeds                               rank collapse 5.59 ± .03,
                                                               entropy collapse 5.64 to 5.65
                                                               ± .03; frequencies only: 5.73
paper  TinyStories, 60 or 12 layers,           days on a GPU   the order of the curves: the paper
       width 600                                               prints no numbers

Beta is the sharpness of attention, alpha_SA the strength of its skip connection. In rank collapse
all tokens are alike after the last layer; in entropy collapse each query attends to few tokens.

The values of beta and alpha_SA above are those of the paper. The tiny and small scales have four
and eight layers and other values: beta 0.5 with alpha_SA = 0.1 (rank collapse), 1 and 1.5
(trainable), and beta 4 with alpha_SA = 0.7, 1 and 1.5 (entropy collapse). With 700 test sequences
it is open whether the collapsed encoders learn more than token frequencies. metrics.jsonl has the
loss and the attention entropy of every step: the two curves of the figure.

15 % of the tokens are chosen for prediction and replaced by the mask. At paper scale, with
task.masking=bert, 10 % of the chosen tokens are replaced by a random token instead and 10 % are
kept. Tiny Shakespeare is prepared as in configs/text/lm.py, TinyStories by

    python experiments/prepare.py --dataset tinystories --tokenizer bpe:10000 \
        --out runs/data/tinystories-bpe10000
"""

from configs import common

SECONDS = {"tiny": 30, "small": 600, "paper": 3 * 86_400}
# curve -> (layers, beta, alpha_SA) of the paper, and (beta, alpha_SA) at tiny and small scale
CURVES = {
    "rank_collapse": ((60, 0.02, 1.0), (0.5, 0.1)),
    "trainable_1.5": ((60, 0.02, 1.5), (0.5, 1.0)),
    "trainable_2": ((60, 0.02, 2.0), (0.5, 1.5)),
    "entropy_1": ((12, 1.8, 1.0), (4.0, 0.7)),
    "entropy_1.5": ((12, 1.8, 1.5), (4.0, 1.0)),
    "entropy_2": ((12, 1.8, 2.0), (4.0, 1.5)),
}


def get_config(arg: str = ""):
    arguments = common.parse(arg, curve=(*CURVES,), scale=common.SCALES)
    config = common.training("text/masked", arguments)
    (layers, beta, alpha), smaller = CURVES[arguments["curve"]]
    config.task = common.prepared_text("masked_tokens", window=16, rate=0.15, masking="plain")
    config.optim.update(schedule="linear", warmup=10)
    config.optim.labels.train.weight_decay = 0.01
    config.train.update(batch_size=64, probes=("attention_entropy",))
    if arguments["scale"] == "paper":
        config.task.update(tokens="tinystories-bpe10000", window=128, masking="bert")
        common.encoder(config, width=600, layers=layers, heads=6, beta=beta, alpha_sa=alpha)
        config.data.update(test_size=2_000, validation_size=2_000)
        config.optim.update(learning_rate=(1e-4,), warmup=1650)
        config.train.update(steps=33_000, log_every=50, eval_every=1_000)
        return config
    beta, alpha = smaller
    if arguments["scale"] == "tiny":
        common.encoder(config, width=32, layers=4, heads=4, beta=beta, alpha_sa=alpha)
        config.data.update(test_size=200, validation_size=100)
        config.optim.learning_rate = (3e-3,)
        config.train.update(steps=200, eval_every=100)
        return config
    tokens, fingerprint = common.SHAKESPEARE
    config.task.update(tokens=tokens, fingerprint=fingerprint, window=32)
    common.encoder(config, width=64, layers=8, heads=4, beta=beta, alpha_sa=alpha)
    config.n_seeds = 3
    config.data.update(test_size=700, validation_size=700)
    config.optim.update(learning_rate=(2e-3,), warmup=100)
    config.train.update(steps=2_000, log_every=20, eval_every=500)
    return config
