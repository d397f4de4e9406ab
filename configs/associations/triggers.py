r"""Several triggers, each with a target of its own (Appendix B.4, Figure 9).

    python experiments/run.py --config=configs/associations/triggers.py:scale=small

scale  what                                             time              expected
tiny   three triggers, N=32, T=16, 20 steps             20 CPU seconds    it runs
small  three triggers, N=32, T=64, 300 steps, 3 seeds   2 CPU minutes     not yet run
paper  five triggers, N=65, T=256, d=256                hours on a GPU    a diagonal of triggers

The paper claims that each trigger finds its own target: in `memories/induction` the triggers' rows
and columns are large only on the diagonal. The triggers are the most frequent symbols.
"""

from configs import common


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    config = common.recall("associations/triggers", arguments)
    config.task.triggers = " etoa" if config.scale == "paper" else " et"
    if config.scale == "small":
        config.n_seeds = 3
    return config
