r"""Noisy in-context recall: the feed-forward layer learns the noise, attention the answer.

    python experiments/run.py --config=configs/associations/recall.py:scale=small

scale  what                                     time                    expected
tiny   N=32, T=16, d=32, 20 steps               20 CPU seconds          it runs
small  N=32, T=64, d=128, 300 steps, 5 seeds    38 CPU seconds a seed   the table
  protocol=plateau  d=64, rate .03, 4,000 steps 130 CPU seconds a seed  without F2 .907, .029
paper  N=65, T=256, d=256, batch 512, 5 seeds   hours on a GPU          without F2 .98 correct

    5 seeds, small       correct, noise
    full model           .50    .48        noise first in 5 of 5, at .90 within 20 steps
    F2 at rho = .1       .89    .08        attention .84 on ybar, .05 on the noise
    without F2           .92    .05        (paper .98; not reached at this scale)
    without F1           .33    .65

Figures 3, 4 (left), 7, 8 (left) and 10. The paper claims that the noise is learned first and by F2,
the correct token later and by attention, and that cutting F2 out (LASER, fraction 0 of its input
matrix) turns p(noise) = p(correct) = 0.5 into p(correct) near 1. Numbers are on clean data, means
of the last three probes; only `accuracy` and its baselines are those on the noisy test set.
`attention_difference` is the mass on ybar minus that on the noise (`attention_ratio` is
heavy-tailed over seeds), `p_correct_gain_..` and `p_noise_drop_..` are those of a cut model over
the full one, `noise_first` is whether p(noise) passed 0.3 before p(correct) did, `p_noise_peak` the
largest p(noise) in the first 20 steps. Conventions are those of the authors' code
(docs/associations.md). The quick protocol has a rate of .1 and stops at 300 steps, where the first
layer has found the previous token half of the time; protocol=plateau has the paper's largest rate
and trains until the previous-token score (`previous_token`, and `.._unmasked` in the authors'
probe) and the gains of the cuts are constant: `late_change/..` is the change in the last quarter of
training. figure.png: Figures 3, 8 and 10, attention.png: Figure 4, memories.png: Figures 7 and 9,
layers.png: the answer and the noise at the end, with the first and with the last feed-forward layer
cut out.
"""

from configs import common
from configs.noisy_recall import PROTOCOLS, recall

SECONDS = {"tiny": 20, "small": 190, "small,protocol=plateau": 450, "paper": 3 * 3600}


def get_config(arg: str = ""):
    arguments = common.parse(arg, protocol=PROTOCOLS, scale=common.SCALES)
    config = recall("associations/recall", arguments)
    config.recall.followed = (0.1, 0.2)
    return config
