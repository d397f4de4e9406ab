r"""Does the model match each of several triggers only with itself? (arXiv 2406.03068, Figure 9)

    python experiments/run.py --config=configs/associations/triggers.py:scale=small

scale  sizes                                      time                    expected result
tiny   3 triggers, 32 symbols, 16 tokens,         20 CPU seconds          none: a test run
       20 steps
small  3 triggers, 32 symbols, 64 tokens,         35 CPU seconds a seed   the table below
       300 steps, 3 seeds
paper  5 triggers, 65 symbols, 256 tokens,        hours on a GPU          large values on the
       width 256                                                          diagonal only

    mean attention logit at small scale                    3 triggers    1 trigger (recall.py)
    a trigger with itself (`induction_triggers`)           21 ± 1        21 ± 2
    two different triggers (`induction_mixed`)             -4.0 ± .5     none
    another token with itself (`induction_others`)         .12 ± .05     .04

The unit is the standard deviation of the logits of all pairs of tokens that are not two triggers.
The second map of memories.png shows the logits. With three triggers, cutting out the last
feed-forward layer raises the probability of the right answer from .51 to .93.

The triggers are the most frequent symbols, each with its own answer in a sequence (Appendix B.4).
"""

from configs import common
from configs.noisy_recall import recall

SECONDS = {"tiny": 20, "small": 105, "paper": 3 * 3600}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    config = recall("associations/triggers", arguments)
    config.task.triggers = " etoa" if config.arguments.scale == "paper" else " et"
    if config.arguments.scale == "small":
        config.n_seeds = 3
    return config
