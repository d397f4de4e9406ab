r"""Kernel-task alignment: the labels move into the leading components of the kernel as N falls.

    python experiments/run.py --config=configs/attention_paths/alignment.py:scale=small

scale  what                                  time             expected share of the labels in the
                                                              five leading components
tiny   8 tokens, 20 features, two datasets   2 CPU seconds    larger at N=5 than in the GP limit
small  the paper's task, 3 datasets          4 CPU seconds    .18 in the GP limit, .81 at N=10
paper  10 datasets                           12 CPU seconds   .21 in the GP limit, .81 at N=10

The paper claims that the kernel of a finite network is better aligned with the task. With 10
datasets the five leading components carry .211 of the labels in the GP limit, .347 at N=100, .659
at N=30 and .810 at N=10. The first component is the mean of the data and carries none.
"""

from configs import common

SECONDS = {"tiny": 2, "small": 4, "paper": 12}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    tiny = arguments["scale"] == "tiny"
    config = common.figure(
        "attention_paths/alignment",
        arguments,
        name="paths_alignment",
        task=common.hidden_markov(arguments["scale"]),
        widths=(5, 20) if tiny else (10, 30, 100),
        components=10 if tiny else 30,
        temperature=0.01,
    )
    config.n_seeds = {"tiny": 2, "small": 3, "paper": 10}[arguments["scale"]]
    return config
