r"""Does the regime at initialisation decide how well a masked language model trains? (Figure 1f)

    python experiments/run.py --config=configs/two_failure_modes/fig1_losses.py:scale=small
    python experiments/run.py --config=configs/two_failure_modes/fig1_losses.py:scale=paper \
        --config.task.text=FILE

variant  trainable | rank_collapse | entropy_collapse: the regime of the initial encoder

scale  sizes                               time               expected test loss (nats a character)
tiny   4 layers, width 32, 16 tokens,      20 CPU seconds     near the entropy of characters, 3.3
       one seed
small  8 layers, width 64, 16 tokens,      2 CPU minutes      trainable 2.183 ± 0.003,
       2,000 steps, 3 seeds                for each variant   rank collapse 3.068 ± 0.014,
                                                              entropy collapse 3.216 ± 0.003
                                                              (standard errors of 8 seeds)
paper  60 or 12 layers, width 600,         days on a GPU      the order of Figure 1f
       128 tokens

In rank collapse all tokens are alike after the last layer; in entropy collapse each query attends
to few tokens (arXiv 2505.24333, Figures 1f and A.1f). Beta is the sharpness of attention, alpha the
strength of its skip connection. At small scale the regimes are beta 0.5 with alpha 1 (predicted
cosine 0.24, trainable) or alpha 0.1 (cosine 1.00; the critical alpha is 0.36), and beta 4 with
alpha 1. The paper has 60 layers with beta 0.02 and alpha 2 or 1, and 12 layers with beta 1.8. The
variances of value weights (sigma_V^2) and MLP weights (sigma_w^2) must both be 0.2: with sigma_V =
1, alpha 1.5 and 2 would collapse as well.

The text is the packaged bigram chain unless task.text names a file; the paper trains one epoch of
TinyStories. `unigram_loss` is the loss of character frequencies. `bigram_loss` is the loss of the
exact posterior given all visible characters, which no model can beat on the chain. metrics.jsonl
has the loss and the mean attention entropy in units of ln T, for T tokens. experiments/compare.py
draws several runs together.
"""

from configs import common

SECONDS = {"tiny": 20, "small": 120, "paper": 3 * 86_400}

# variant -> (layers, beta, alpha_SA) of the paper, and (beta, alpha_SA) at tiny and small scale
REGIMES = {
    "trainable": ((60, 0.02, 2.0), (0.5, 1.0)),
    "rank_collapse": ((60, 0.02, 1.0), (0.5, 0.1)),
    "entropy_collapse": ((12, 1.8, 1.5), (4.0, 1.0)),
}


def get_config(arg: str = ""):
    arguments = common.parse(arg, variant=(*REGIMES,), scale=common.SCALES)
    config = common.training("two_failure_modes/fig1_losses", arguments)
    (layers, beta, alpha), smaller = REGIMES[config.arguments.variant]
    config.task = common.masked_text(window=16)
    config.train.update(batch_size=64, eval_every=500, probes=("attention_entropy",))
    config.optim.labels.train.weight_decay = 0.01
    config.optim.schedule = "linear"
    if config.arguments.scale == "paper":
        config.task.update(window=128, masking="bert")
        common.encoder(config, width=600, layers=layers, heads=6, beta=beta, alpha_sa=alpha)
        config.train.update(steps=33_000, log_every=50, eval_every=1000)
        config.optim.update(learning_rate=(1e-4,), warmup=1650)
        return config
    beta, alpha = smaller
    if config.arguments.scale == "tiny":
        common.encoder(config, width=32, layers=4, heads=4, beta=beta, alpha_sa=alpha)
        config.train.update(steps=200, eval_every=100)
        config.data.update(test_size=200, validation_size=100)
        config.optim.update(learning_rate=(3e-3,), warmup=10)
    elif config.arguments.scale == "small":
        common.encoder(config, width=64, layers=8, heads=4, beta=beta, alpha_sa=alpha)
        config.n_seeds = 3
        config.train.steps = 2000
        config.data.update(test_size=500, validation_size=200)
        config.optim.update(learning_rate=(2e-3,), warmup=100)
    return config
