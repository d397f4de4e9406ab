r"""Several triggers, each with a separate target (Appendix B.4, Figure 9).

    python experiments/run.py --config=configs/associations/triggers.py:scale=small

scale  what                                             time                    expected
tiny   three triggers, N=32, T=16, 20 steps             20 CPU seconds          it runs
small  three triggers, N=32, T=64, 300 steps, 3 seeds   35 CPU seconds a seed   21 and -4 (below)
paper  five triggers, N=65, T=256, d=256                hours on a GPU          a diagonal

The paper claims that each trigger is matched with itself only: in the second map of memories.png
the triggers' rows and columns are large on the diagonal. `induction_triggers` is the mean logit
there, in standard deviations of all logits but those of two triggers; `induction_mixed` that of two
different triggers, `induction_others` that of a token with itself that is no trigger. Small: 21 +-
1, -4.0 +- .5 and .12 +- .05 (with one trigger, recall.py: 21 +- 2, none and .04), and without F2
p(correct) is .93 for .51. The triggers are the most frequent symbols.
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
