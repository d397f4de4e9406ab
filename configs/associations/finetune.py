r"""From clean to noisy: which part takes up the noise in fine-tuning? (Appendix B.1, Figure 8)

    python experiments/run.py --config=configs/associations/finetune.py:scale=small

scale  what                                             time                    expected
tiny   N=32, T=16, 10 clean and 10 noisy steps          20 CPU seconds          it runs
small  300 clean, then 400 noisy steps, 3 seeds         75 CPU seconds a seed   the table
paper  N=65, T=256, d=256, 1,000 and 2,000 steps        hours on a GPU          the claims

    small                      attention on ybar minus that on the noise
    after the clean phase      -.02 +- .13
    after fine-tuning           .85 +- .04

    after fine-tuning          p(correct), p(noise) on clean data
    everything                 .50   .50 +- .01
    without F2                 .96   .01 +- .00
    without F1                 .25   .73 +- .03

The paper claims that after clean training attention looks at ybar and at the noise alike, that in
fine-tuning the noise is learned within about 5 steps, to near 1, and that then attention turns away
from it. Here p(noise) reaches .67 +- .02 by step 6 (`p_noise_peak`). Two fits:
`recall.pretrain_steps` with alpha = 0, then the task's alpha. The rate is 0.03, because 0.1
diverges on clean data.
"""

from configs import common

SECONDS = {"tiny": 20, "small": 225, "paper": 3 * 3600}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    config = common.recall("associations/finetune", arguments)
    config.recall.pretrain_steps, config.train.steps = {
        "tiny": (10, 20),
        "small": (300, 700),
        "paper": (1000, 3000),
    }[config.arguments.scale]
    config.optim.learning_rate = (0.03,)
    if config.arguments.scale == "small":
        config.n_seeds = 3
    return config
