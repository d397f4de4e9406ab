r"""Does dropping the last MLP help deeper models on synthetic IOI? (arXiv 2406.03068, Appendix J)

    python experiments/run.py --config=configs/associations/ioi.py:layers=3,scale=small

layers     3 | 4 | 5 | 6 | 7
optimizer  sgd (Figure 19) | adam (Figure 20, where W1 of the last MLP keeps 1 % of its rank)
reading    rarer (the answer is the successor that occurs once) | more (the answer is the
           successor that occurs more often)

scale  sizes                                     time                     expected result
tiny   32 symbols, 16 tokens, width 32,          20 CPU seconds           none: a test run
       20 steps
small  32 symbols, 32 tokens, width 128,         2 CPU minutes a seed     the table below
       3,000 steps, 3 seeds                      (4 minutes with 5
                                                 layers, 7 with 7)
paper  65 symbols, 256 tokens, width 256,        hours on a GPU           the claim of the paper
       batches of 512, 5,000 steps

                             full model       without last MLP    last W1 at 1 % of its rank
    small scale, clean data  answer  noise    answer  noise       gain of the answer
    SGD, 3 layers, rarer     .25     .50      .47     .05         +.24
    SGD, 3 layers, more      .51     .48      .88     .02         +.41
    SGD, 4 layers, rarer     .28     .51      .53     .06         +.27
    SGD, 5 layers, rarer     .33     .51      .61     .07         +.30
    SGD, 6 layers, rarer     .42     .49      .75     .05         +.37
    SGD, 7 layers, rarer     .45     .50      .82     .06         +.42
    Adam, 3 layers, rarer    .23     .50      .38     .20         +.17
    Adam, 4 layers, rarer    .24     .50      .33     .33         +.19
    Adam, 5 layers, rarer    .25     .51      .32     .35         +.20

Numbers are probabilities. Standard errors are at most .03, but up to .06 for SGD with 4 and 5
layers. In IOI (indirect object identification) two tokens follow the trigger and one of them is the
answer. The paper claims that dropping the last MLP helps 3 to 7 layers trained with SGD, and that
the cut to 1 % helps 3 and 4 layers trained with Adam, while 5 do not converge. Both hold here, and
5 layers with Adam behave like 3 and 4. The paper's construction and its prose disagree on which
successor is the answer; `reading` selects one of them.

The cut removes the noise, but few of these models find the answer. A guess between the two
successors has an accuracy of .5. Without the last MLP, models trained with SGD on `rarer` have an
accuracy of .580 ± .015 with 3 layers and of .945 with 7 layers; on `more` it is .998 with 3 layers.
The gradient is clipped at 1, because the rate of 0.03 diverges otherwise.
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
