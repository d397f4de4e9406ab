r"""Kernel-task alignment: the labels move into the leading components of the kernel as N falls.

    python experiments/run.py --config=configs/attention_paths/alignment.py:scale=small

scale  what                                  time             expected
tiny   8 tokens, 20 features, two datasets   2 CPU seconds    more at N=5 than GP
small  the paper's task, 3 datasets          4 CPU seconds    five leading: .18 GP, .81 N=10
paper  10 datasets                           12 CPU seconds   five leading: .21 GP, .81 N=10

The paper claims that the finite network's kernel is better aligned with the task. Expected (10
datasets): the five leading components carry .211 of the labels in the GP limit, .347 at N=100, .659
at N=30, .810 at N=10. The first component is the mean of the data and carries none.
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
