r"""Masked language modelling in the three regimes (arXiv 2505.24333, Figure 1f; A.1 f).

    python experiments/run.py --config=configs/two_failure_modes/fig1_losses.py:scale=small
    python experiments/run.py --config=configs/two_failure_modes/fig1_losses.py:scale=paper \
        --config.task.text=FILE

variant  trainable | rank_collapse | entropy_collapse: the regime of the initial encoder

scale  what                               time               expected test loss (nats a character)
tiny   L=4, d=32, T=16, one seed          20 CPU seconds     near the unigram entropy, 3.3
small  L=8, d=64, T=16, 2000 steps,       2 CPU minutes      2.183 +- 0.003, rank collapse 3.068
       3 seeds                            each               +- 0.014, entropy collapse 3.216 +-
                                                             0.003 (standard errors of 8 seeds)
paper  L=60 or 12, d=600, T=128           days on a GPU      the order of Figure 1f

Text is the packaged bigram chain of tiny Shakespeare unless task.text names a file (the paper:
TinyStories, one epoch). Baselines: `unigram_loss` is that of frequencies only; `bigram_loss` is the
exact posterior given all that is not masked, which on the chain no model can beat. Each row of
metrics.jsonl holds the mean attention entropy (in units of ln T) beside the loss;
experiments/compare.py draws several runs together.

At small scale the regimes are reached with 8 layers: beta = 0.5 with alpha_SA = 1 (predicted cosine
0.24, trainable) or 0.1 (below alpha_c = 0.36: 1.00, rank collapse), and beta = 4, alpha_SA = 1
(entropy collapse). Paper: 60 layers, beta = 0.02, alpha 2 or 1; 12 layers, beta = 1.8. sigma_V^2 =
sigma_w^2 = 0.2 must hold for the values too: with sigma_V = 1 alpha = 1.5 and 2 would collapse.
"""

from configs import common

SECONDS = {"tiny": 20, "small": 120, "paper": 3 * 86_400}

# variant -> (layers, beta, alpha_SA) of the paper, and (beta, alpha_SA) at our scales
REGIMES = {
    "trainable": ((60, 0.02, 2.0), (0.5, 1.0)),
    "rank_collapse": ((60, 0.02, 1.0), (0.5, 0.1)),
    "entropy_collapse": ((12, 1.8, 1.5), (4.0, 1.0)),
}


def get_config(arg: str = ""):
    arguments = common.parse(arg, variant=(*REGIMES,), scale=common.SCALES)
    config = common.training("two_failure_modes/fig1_losses", arguments)
    (layers, beta, alpha), ours = REGIMES[config.arguments.variant]
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
    beta, alpha = ours
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
