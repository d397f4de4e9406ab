r"""One layer, one head: entropy and loss for a range of beta (arXiv 2505.24333, Figure 4).

    python experiments/run.py --config=configs/two_failure_modes/fig4_entropy.py:scale=small

variant  beta_0_5 | beta_1_0 | beta_1_4 | beta_1_8 | beta_3_0 | beta_4_0

scale  what                               time                  expected test loss (nats)
tiny   d=32, T=16, one seed               10 CPU seconds        between 2.03 and 3.35
small  d=64, T=64, 2000 steps, 5 seeds    2 CPU minutes each    see RESULTS.md
paper  d=768, T=128, 33,000 steps         hours on a GPU        the order of the figure


The attention entropy is logged at every step beside the loss, and the result has its first and last
value. At step 0 it is the exact theory's, theory.rem.attention_entropy(beta, 0, T) / ln T: 0.91,
0.37 and 0.12 at beta 0.5, 1.8 and 4.0 with T = 64 (tokens that repeat raise rho a little, and with
it the entropy); the paper's limit is max(0, 1 - beta^2/2). Draw several variants together with
experiments/compare.py.
"""

from configs import common

SECONDS = {"tiny": 10, "small": 120, "paper": 3 * 3600}

BETAS = {f"beta_{beta:.1f}".replace(".", "_"): beta for beta in (0.5, 1.0, 1.4, 1.8, 3.0, 4.0)}


def get_config(arg: str = ""):
    arguments = common.parse(arg, variant=(*BETAS,), scale=common.SCALES)
    config = common.training("two_failure_modes/fig4_entropy", arguments)
    beta = BETAS[config.arguments.variant]
    config.task = common.masked_text(window=16)
    config.train.update(batch_size=64, eval_every=200, probes=("attention_entropy",))
    config.optim.labels.train.weight_decay = 0.01
    config.optim.schedule = "linear"
    if config.arguments.scale == "paper":
        config.task.update(window=128, masking="bert")
        common.encoder(config, width=768, layers=1, heads=1, beta=beta, alpha_sa=1.0)
        config.train.update(steps=33_000, log_every=50, eval_every=1000)
        config.optim.update(learning_rate=(5e-4,), warmup=1650)
        return config
    if config.arguments.scale == "tiny":
        common.encoder(config, width=32, layers=1, heads=1, beta=beta, alpha_sa=1.0)
        config.train.update(steps=200, eval_every=100)
        config.data.update(test_size=200, validation_size=100)
        config.optim.update(learning_rate=(3e-3,), warmup=10)
    elif config.arguments.scale == "small":
        config.task.window = 64
        common.encoder(config, width=64, layers=1, heads=1, beta=beta, alpha_sa=1.0)
        config.n_seeds = 5
        config.train.update(batch_size=32, steps=2000)
        config.data.update(test_size=500, validation_size=200)
        config.optim.update(learning_rate=(3e-3,), warmup=50)
    return config
