r"""Do the claims of Figure 2 hold for many data sets? (arXiv 2405.15926)

    python experiments/run.py --config=configs/attention_paths/datasets.py:scale=small

scale  sizes                                             time              expected result
tiny   8 tokens, 20 features, 2 data sets                10 CPU seconds    none: a test run
small  the paper's task, 12 data sets, noise 1 to 8      2 CPU minutes     see RESULTS.md
paper  the paper's task, 30 data sets                    5 CPU minutes     see RESULTS.md

The run tests five claims of the paper:

- A network of width 10 is better than the limit of infinite width (the GP limit).
- A network of width 10 is better than the good path alone, the one that computes the label.
- The good and the denoising path, which sees only the noise, help each other already in the GP
  limit, and "the boost is even higher in the renormalized regime" of finite width.
- Adversarial paths are suppressed as the width falls.
- The four effects above are clearer with noisier data.

Every number is a mean over data sets that no other config uses (seeds from 100 on). Differences are
taken on the same data set, so their standard errors exclude the variation between data sets.
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
