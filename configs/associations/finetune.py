r"""Fine-tuning from clean to noisy data: which part learns the noise? (Appendix B.1, Figure 8)

    python experiments/run.py --config=configs/associations/finetune.py:scale=small

scale  what                                             time                    expected
tiny   N=32, T=16, 10 clean and 10 noisy steps          20 CPU seconds          it runs
small  300 clean, then 400 noisy steps, 3 seeds         75 CPU seconds a seed   the table
paper  N=65, T=256, d=256, 1,000 and 2,000 steps        hours on a GPU          the claims

    small                      attention on ybar minus that on the noise
    after the clean phase       .054 +- .103
    after fine-tuning           .805 +- .038

    after fine-tuning          p(correct), p(noise) on clean data
    full model                 .498 +- .009   .496 +- .008
    without F2                 .959 +- .001   .007 +- .001
    without F1                 .302 +- .035   .673 +- .033

The paper claims that after clean training attention is on ybar and on the noise alike, that in
fine-tuning the noise is learned within about 5 steps, to near 1, and that attention then avoids it.
Here p(noise) reaches .670 +- .008 by step 6 (`p_noise_peak`). A run has `recall.pretrain_steps`
with alpha = 0, then the task's alpha. The rate is 0.03, because 0.1 diverges on clean data.
protocol=plateau has .01 and 3,000 clean steps, because after 1,500 clean steps at .03 three of five
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
