"""Does retrieval still work if queries and keys are frozen for the first part of training?

    python experiments/run.py --config=configs/mixit/unfreezing.py:thaw=at_200,scale=small

thaw     never (Frozen-QK) | at_100 | at_200 | at_300 | always (Standard)

scale  sizes                                   time               expected test accuracy
tiny   width 64, up to 6 pairs, 32 symbols,    20 CPU seconds     95 % or more
       400 steps
small  width 64, up to 12 pairs, 64 symbols,   90 CPU seconds     all but `never` learn the task;
       3 seeds                                                    `never` is below them
paper  width 1024, up to 30 pairs,             hours on a GPU     an open question of the papers
       256 symbols

The papers leave "hybrid training schedules" open. Here the queries and keys keep their initial
values until a step and are trained from then on. They have their own optimizer label `late`, so
their Adam moments start at that step. `trained_share` is the share of trained parameters, averaged
over steps.
"""

from configs import common

SECONDS = {"tiny": 20, "small": 90, "paper": 3 * 3600}

THAW = {"never": 0, "at_100": 100, "at_200": 200, "at_300": 300, "always": 0}


def get_config(arg: str = ""):
    arguments = common.parse(arg, thaw=(*THAW,), scale=common.SCALES)
    always = arguments["thaw"] == "always"
    variant = "standard" if always else "frozen_qk"
    arguments |= dict(variant=variant, preset="paper")
    config = common.training("mixit/unfreezing", arguments)
    common.set_split(config)
    config.task = dict(name="retrieval", max_pairs=6, vocab=32, format="authors")
    common.decoder(config, width=64, layers=2, heads=4)
    config.train.update(batch_size=64, steps=400, eval_every=50)
    config.optim.learning_rate = (3e-3,)
    config.optim.labels.late = common.adamw()
    if THAW[config.arguments.thaw]:
        rules = ((".*/(query|key)/.*", "late"), (".*", "train"))
        config.unfreeze = ((THAW[config.arguments.thaw], rules),)
    if config.arguments.scale == "small":
        config.task.update(max_pairs=12, vocab=64)
        config.n_seeds = 3
        config.data.test_size = 4000
        config.train.steps = 1000
        config.optim.learning_rate = (3e-3, 1e-2)
    elif config.arguments.scale == "paper":
        config.task.update(max_pairs=30, vocab=256)
        common.decoder(config, width=1024, layers=2, heads=4)
        config.n_seeds = 3
        config.train.update(batch_size=1024, steps=10_000, log_every=50, eval_every=500)
        config.optim.update(learning_rate=(5e-4, 1e-4), warmup=500)
    return config
