r"""Synthetic indirect object identification (Appendix J, Figures 19 and 20).

    python experiments/run.py --config=configs/associations/ioi.py:layers=3,scale=small

layers     3 | 4 | 5 | 6 | 7
optimizer  sgd (Figure 19) | adam (Figure 20: the last W1 at rho = .01)
reading    rarer (the construction, as in IOI: the successor that occurs once) | more (the prose)

scale  what                                             time                     expected
tiny   N=32, T=16, d=32, 20 steps                       20 CPU seconds           it runs
small  N=32, T=32, d=128, 3,000 steps, 3 seeds          2 CPU minutes a seed,    the table
                                                        3 layers; 4 for 5, 7 for 7
paper  N=65, T=256, d=256, batch 512, 5,000 steps       hours on a GPU           the claim

    small scale, clean data  p(correct)  p(noise)  without the last MLP  its W1 at 1 %: p(correct)
    SGD, 3 layers, rarer     .25         .50       .47 / .05             +.24
    SGD, 3 layers, more      .51         .48       .88 / .02             +.41
    SGD, 4 layers, rarer     .28         .51       .53 / .06             +.27
    SGD, 5 layers, rarer     .33         .51       .61 / .07             +.30
    SGD, 6 layers, rarer     .42         .49       .75 / .05             +.37
    SGD, 7 layers, rarer     .45         .50       .82 / .06             +.42
    Adam, 3 layers, rarer    .23         .50       .38 / .20             +.17
    Adam, 4 layers, rarer    .24         .50       .33 / .33             +.19
    Adam, 5 layers, rarer    .25         .51       .32 / .35             +.20

Standard errors are .03 at most, but up to .06 of SGD with 4 and 5 layers. The paper claims that
dropping the last MLP raises the accuracy for 3 to 7 layers trained with SGD, and that cutting its
first matrix to 1 % does so for 3 and 4 layers trained with Adam, 5 not converging. Both hold here,
and with Adam 5 layers behave as 3 and 4 do. Without the last MLP three layers trained on `rarer`
still divide their answer between the two successors: all attention is on them, and networks learn
slowly, and with more layers, which of them occurs once (7: accuracy .945). On `more` three layers
learn the answer (.998). A rate of 0.03 diverges without the clip of 1. The text contradicts itself:
the construction makes ybar the rarer successor, in the prose it "appears more". Both readings are
here. Two tokens follow the trigger, so that guessing one of them has p(correct) .5 on clean data: 3
layers on `rarer` and every run with Adam stay below it, cut or not. The cut removes the noise, but
these networks hardly distinguish the two successors: without its last MLP 3 layers of SGD are right
in .580 +- .015, a guess in .5.
"""

from configs import common
from configs.noisy_recall import recall

SECONDS = {
    "tiny": 20,
    "small": 360,
    "small,layers=5": 720,
    "small,layers=7": 1260,
    "paper": 3 * 3600,
}


def get_config(arg: str = ""):
    arguments = common.parse(
        arg,
        layers=("3", "4", "5", "6", "7"),
        optimizer=("sgd", "adam"),
        reading=("rarer", "more"),
        scale=common.SCALES,
    )
    layers = int(arguments["layers"])
    config = recall("associations/ioi", arguments, ("mlp",) * layers)
    tiny, paper = config.arguments.scale == "tiny", config.arguments.scale == "paper"
    config.task = dict(
        name="ioi",
        n_symbols=65 if paper else 32,
        context=256 if paper else 16 if tiny else 32,
        alpha=0.5,
        reading=config.arguments.reading,
    )
    config.recall.truncate = (f"block_{layers - 1}/mlp/in",)
    config.optim.learning_rate = (0.01 if paper else 0.03,)
    if config.arguments.optimizer == "adam":
        config.optim.learning_rate = (3e-4 if paper else 1e-3,)
        config.optim.labels = dict(train=common.adamw(0.0))
        config.recall.followed = (0.01,)
    if config.arguments.scale == "small":
        config.optim.clip = 1.0
        config.n_seeds = 3
    if not tiny:
        config.train.update(steps=5000 if paper else 3000)
        config.recall.probe_every = 100
    return config
