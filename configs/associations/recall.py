r"""Noisy in-context recall: the feed-forward layer takes the noise, attention learns the answer.

    python experiments/run.py --config=configs/associations/recall.py:scale=small

scale  what                                     time                    expected
tiny   N=32, T=16, d=32, 20 steps               20 CPU seconds          it runs
small  N=32, T=64, d=128, 300 steps, 5 seeds    34 CPU seconds a seed   the table
paper  N=65, T=256, d=256, batch 512, 5 seeds   hours on a GPU          without F2 .98 correct

    5 seeds, small       correct, noise
    everything           .51    .48        noise first in 5 of 5; attention .84 ybar, .04 noise
    without F2           .92    .04        (paper .98; not reached at this scale)
    without F1           .33    .65

Figures 3, 4 and 7. The paper claims that the noise is learned first and by F2, the correct token
later and by attention, and that cutting F2 out (LASER, fraction 0 of its input matrix) turns
p(noise) = p(correct) = 0.5 into p(correct) near 1. `attention_ratio` is the mass on ybar over that
on the noise, `noise_first` whether p(noise) passed 0.3 before p(correct) did; all numbers are means
of the last three evaluations. Conventions are the authors' code's (docs/associations.md).
figure.png: Figures 3 and 4, memories.png: Figure 7.
"""

from configs import common


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    config = common.recall("associations/recall", arguments)
    config.recall.followed = (0.1, 0.2)
    return config
