r"""Synthetic indirect object identification (Appendix J, Figures 19 and 20).

    python experiments/run.py --config=configs/associations/ioi.py:layers=3,scale=small

layers   3 | 4 | 5
reading  rarer (the construction, as in IOI: the successor that came once) | more (the prose)

scale  what                                             time              expected
tiny   N=32, T=16, d=32, 20 steps                       20 CPU seconds    it runs
small  N=32, T=32, d=128, 2,000 steps                   CPU minutes       not yet run
paper  the same with d=256, batch 512, 5,000 steps      hours on a GPU    the last MLP has the noise

The paper claims that dropping the last MLP raises p(correct) for 3 to 7 layers trained with SGD.
Its text contradicts itself: the construction makes ybar the rarer successor, the prose says that it
"appears more". Both readings are here.
"""

from configs import common


def get_config(arg: str = ""):
    arguments = common.parse(
        arg, layers=("3", "4", "5"), reading=("rarer", "more"), scale=common.SCALES
    )
    layers = int(arguments["layers"])
    config = common.recall("associations/ioi", arguments, ("mlp",) * layers)
    context = 16 if config.scale == "tiny" else 32
    config.task = dict(name="ioi", n_symbols=32, context=context, alpha=0.5, reading=config.reading)
    config.recall.truncate = (f"block_{layers - 1}/mlp/in",)
    if config.scale != "tiny":
        config.train.update(steps=2000 if config.scale == "small" else 5000)
        config.recall.probe_every = 100
        config.optim.learning_rate = (0.03,)
        config.n_seeds = 1 if config.scale == "small" else 5
    return config
