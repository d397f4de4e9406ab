r"""Which part of a model learns the noise in fine-tuning on noisy data? (Figures 4 and 8)

    python experiments/run.py --config=configs/associations/finetune.py:scale=small

scale  sizes                                      time                    expected result
tiny   32 symbols, 16 tokens, 10 clean and        20 CPU seconds          none: a test run
       10 noisy steps
small  32 symbols, 64 tokens, 300 clean and       75 CPU seconds a seed   the tables below
       400 noisy steps, 3 seeds
paper  65 symbols, 256 tokens, width 256,         hours on a GPU          the claims of the paper
       1,000 clean and 2,000 noisy steps

    small scale, on clean data            right answer     noise
    full model                            .498 ± .009      .496 ± .008
    without the last feed-forward layer   .959 ± .001      .007 ± .001
    without the first one                 .302 ± .035      .673 ± .033

    attention on the right answer minus attention on the noise
    after the clean phase                 .054 ± .103
    after fine-tuning                     .805 ± .038

The paper (arXiv 2406.03068, Appendix B.1) makes three claims. After clean training attention does
not prefer the answer to the noise. In fine-tuning the probability of the noise rises to near 1
within about 5 steps. Then attention learns to avoid the noise. Here that probability reaches
.670 ± .008 by step 6 (`p_noise_peak`).

The first `recall.pretrain_steps` steps have no noise. After them, the noise follows a trigger with
the probability alpha of the task. The learning rate is 0.03, because 0.1 diverges on clean data.
protocol=plateau uses .01 and 3,000 clean steps: at .03, after 1,500 clean steps, three of five
seeds diverged when the noise began.
"""

from configs import common
from configs.noisy_recall import PROTOCOLS, recall

SECONDS = {"tiny": 20, "small": 225, "small,protocol=plateau": 550, "paper": 3 * 3600}


def get_config(arg: str = ""):
    arguments = common.parse(arg, protocol=PROTOCOLS, scale=common.SCALES)
    plateau = arguments["protocol"] == "plateau"
    config = recall("associations/finetune", arguments)
    config.recall.pretrain_steps, config.train.steps = {
        "tiny": (10, 20),
        "small": (3000, 8000) if plateau else (300, 700),
        "paper": (2000, 6000) if plateau else (1000, 3000),
    }[config.arguments.scale]
    config.optim.learning_rate = (0.01 if plateau else 0.03,)
    if config.arguments.scale == "small" and not plateau:
        config.n_seeds = 3
    return config
