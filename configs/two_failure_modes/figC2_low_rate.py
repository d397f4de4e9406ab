r"""Figure 4 with a fifth of the learning rate (arXiv 2505.24333, Figure C.2).

    python experiments/run.py --config=configs/two_failure_modes/figC2_low_rate.py:scale=small

variant  beta_0_5 | beta_1_0 | beta_1_4 | beta_1_8 | beta_3_0 | beta_4_0

scale  what                               time                  expected test loss (nats)
tiny   d=32, T=16, one seed               10 CPU seconds        between 2.03 and 3.35
small  d=64, T=16, 4000 steps, 3 seeds    40 CPU seconds each   2.55, 2.67, 2.78 (+- 0.03) at
                                                                beta 0.5, 1.8, 4.0
paper  d=768, T=128, 33,000 steps         hours on a GPU        the order of the figure

This is fig4_entropy with a fifth of the learning rate, as 1e-4 is of 5e-4 in the paper, which
reports that this mitigates the collapse. At small scale, with four times the steps, it does so
partly: the loss of beta = 4 is 0.23 +- 0.04 above that of 0.5 (fig4_entropy: 0.30 +- 0.03), and
attention ends at 0.12 of ln T (fig4_entropy: 0.06).
"""

from configs.two_failure_modes import fig4_entropy

SECONDS = {"tiny": 10, "small": 40, "paper": 3 * 3600}


def get_config(arg: str = ""):
    config = fig4_entropy.get_config(arg)
    config.name = "two_failure_modes/figC2_low_rate"
    config.optim.learning_rate = tuple(round(r / 5, 6) for r in config.optim.learning_rate)
    if config.arguments.scale == "small":
        config.train.steps = 4000
    return config
