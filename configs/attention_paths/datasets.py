r"""The claims of Figure 2 over many data sets, every comparison on the same data.

    python experiments/run.py --config=configs/attention_paths/datasets.py:scale=small

scale  what                                              time              expected
tiny   8 tokens, 20 features, two data sets              10 CPU seconds    it runs
small  the paper's task, 12 data sets, noise 1 to 8      2 CPU minutes     see below
paper  30 data sets                                      5 CPU minutes     see below

The paper claims that N = 10 beats the GP limit and the good path alone, that good and denoising
help each other in the GP limit already and that "the boost is even higher in the renormalized
regime", that adversarial paths are suppressed as N falls, and that all this is clearer with
noisier data. Every number is a mean over data sets that no other config uses (seeds from 100 on).
Every gain is a difference on the same data, so its error is that of the difference.
"""

from configs import common

SECONDS = {"tiny": 10, "small": 120, "paper": 300}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    tiny = arguments["scale"] == "tiny"
    config = common.figure(
        "attention_paths/datasets",
        arguments,
        name="paths_datasets",
        task=common.hidden_markov(arguments["scale"]),
        designs=("two_paths_uniform", "two_paths"),
        noises=(1.0, 5.0) if tiny else (1.0, 2.0, 3.5, 5.0, 8.0),
        temperature=0.01,
    )
    config.seed = 100
    config.n_seeds = {"tiny": 2, "small": 12, "paper": 30}[arguments["scale"]]
    return config
