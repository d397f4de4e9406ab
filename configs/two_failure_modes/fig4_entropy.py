r"""Do lower attention entropies at the start give higher losses? (arXiv 2505.24333, Figure 4)

    python experiments/run.py --config=configs/two_failure_modes/fig4_entropy.py:scale=small

variant  beta_0_5 | beta_1_0 | beta_1_4 | beta_1_8 | beta_3_0 | beta_4_0: the sharpness of attention

scale  sizes                                 time                 expected test loss (nats)
tiny   width 32, 16 tokens, one seed         10 CPU seconds       between 2.03 and 3.35
small  width 64, 16 tokens, 1,000 steps,     20 CPU seconds each  2.55, 2.72 and 2.84 (each ± 0.03)
       3 seeds                                                    at beta 0.5, 1.8 and 4.0
paper  width 768, 128 tokens, 33,000 steps   hours on a GPU       the order of the figure

The network has one layer with one head. metrics.jsonl has the loss and the attention entropy of
every step, in units of ln T for T tokens. At the start the exact theory,
theory.rem.attention_entropy(beta, 0, T) / ln T, gives 0.89, 0.42 and 0.18 at these three betas; its
argument 0 is the cosine of two tokens. The measured entropy of steps 1 to 10 is 0.89, 0.44 and
0.19: some tokens are repeated, which raises the cosine a little. The paper's limit of infinitely
many tokens, max(0, 1 - beta^2 / 2), is far off with 16 tokens. experiments/compare.py draws several
variants together.
"""

from configs import common

SECONDS = {"tiny": 10, "small": 20, "paper": 3 * 3600}

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
        common.encoder(config, width=64, layers=1, heads=1, beta=beta, alpha_sa=1.0)
        config.n_seeds = 3
        config.data.update(test_size=500, validation_size=200)
        config.optim.update(learning_rate=(3e-3,), warmup=50)
    return config
