r"""Does the feed-forward layer learn the noise and attention the answer? (arXiv 2406.03068)

    python experiments/run.py --config=configs/associations/recall.py:scale=small

scale  sizes                                       time                    expected result
tiny   32 symbols, 16 tokens, width 32,            20 CPU seconds          none: a test run
       20 steps
small  32 symbols, 64 tokens, width 128,           38 CPU seconds a seed   the table below
       300 steps, 5 seeds
       protocol=plateau: width 64, learning        130 CPU seconds a seed  without F2 .907 right,
       rate .03, 4,000 steps, 5 seeds                                      .029 noise
paper  65 symbols, 256 tokens, width 256,          hours on a GPU          without F2 .98 right
       batches of 512, 5 seeds

    small scale, clean data           right answer  noise
    full model                        .50           .48
    F2 at 10 % of its rank            .89           .08
    without F2                        .92           .05
    without F1                        .33           .65

A trigger is followed by one answer ybar or, with probability alpha, by a noise token. F1 and F2 are
the feed-forward layers of the two layers. The paper claims that F2 learns the noise first,
attention learns the answer later, and cutting F2 out (LASER) restores the answer (Figures 3, 4, 7,
8 and 10). Here the noise is learned first in 5 of 5 seeds; its probability reaches .90 within 20
steps. At the end, attention is .84 on the answer and .05 on the noise. Standard errors of the table
are at most .011.

Probabilities are those on clean data, averaged over the last three probes (measurements during
training). Metrics with `gain` or `drop` compare a cut model with the full one. `noise_first` is
whether the probability of the noise passed 0.3 before that of the answer. `p_noise_peak` is the
largest probability of the noise in the first 20 steps, `late_change/..` a change in the last
quarter of training, and `attention_difference` the attention on the answer minus that on the noise.
protocol=quick has a learning rate of .1 and stops early; protocol=plateau trains at the paper's
largest rate until the metrics are constant.
docs/associations.md lists the figures and the conventions, which are those of the authors' code.
"""

from configs import common
from configs.noisy_recall import PROTOCOLS, recall

SECONDS = {"tiny": 20, "small": 190, "small,protocol=plateau": 450, "paper": 3 * 3600}


def get_config(arg: str = ""):
    arguments = common.parse(arg, protocol=PROTOCOLS, scale=common.SCALES)
    config = recall("associations/recall", arguments)
    config.recall.followed = (0.1, 0.2)
    return config
