r"""Figure 4 with a fifth of the learning rate (arXiv 2505.24333, Figure C.2).

    python experiments/run.py --config=configs/two_failure_modes/figC2_low_rate.py:scale=small

variant  beta_0_5 | beta_1_0 | beta_1_4 | beta_1_8 | beta_3_0 | beta_4_0

scale  what                               time                  expected test loss (nats)
tiny   d=32, T=16, one seed               10 CPU seconds        between 2.03 and 3.35
small  d=64, T=16, 4000 steps, 3 seeds    40 CPU seconds each   2.55, 2.67, 2.78 (+- 0.03) at
                                                                beta 0.5, 1.8, 4.0
paper  d=768, T=128, 33,000 steps         hours on a GPU        the order of the figure


Like fig4_entropy, except that the learning rate is a fifth, as 1e-4 is of 5e-4 in the paper, which
reports that this mitigates the collapse. At small scale, with four times the steps, it does so in
part: the loss of beta = 4 is 0.23 +- 0.04 above that of 0.5 (fig4_entropy: 0.30 +- 0.03), and
attention ends at 0.12 of ln T (fig4_entropy: 0.06).
"""

from configs import common

BETAS = {f"beta_{beta:.1f}".replace(".", "_"): beta for beta in (0.5, 1.0, 1.4, 1.8, 3.0, 4.0)}


def get_config(arg: str = ""):
    arguments = common.parse(arg, variant=(*BETAS,), scale=common.SCALES)
    config = common.training("two_failure_modes/figC2_low_rate", arguments)
    beta = BETAS[config.variant]
    config.task = common.masked_text(window=16)
    config.train.update(batch_size=64, eval_every=200, probes=("attention_entropy",))
    config.optim.labels.train.weight_decay = 0.01
    config.optim.schedule = "linear"
    if config.scale == "paper":
        config.task.update(window=128, masking="bert")
        common.encoder(config, width=768, layers=1, heads=1, beta=beta, alpha_sa=1.0)
        config.train.update(steps=33_000, log_every=50, eval_every=1000)
        config.optim.update(learning_rate=(1e-4,), warmup=1650)
        return config
    if config.scale == "tiny":
        common.encoder(config, width=32, layers=1, heads=1, beta=beta, alpha_sa=1.0)
        config.train.update(steps=200, eval_every=100)
        config.data.update(test_size=200, validation_size=100)
        config.optim.update(learning_rate=(6e-4,), warmup=10)
    elif config.scale == "small":
        common.encoder(config, width=64, layers=1, heads=1, beta=beta, alpha_sa=1.0)
        config.n_seeds = 3
        config.train.steps = 4000
        config.data.update(test_size=500, validation_size=200)
        config.optim.update(learning_rate=(6e-4,), warmup=50)
    return config
