r"""Is the kernel of a narrow network better aligned with the labels? (arXiv 2405.15926)

    python experiments/run.py --config=configs/attention_paths/alignment.py:scale=small

scale  sizes                                 time             expected share of the labels in the
                                                              five leading components
tiny   8 tokens, 20 features, 2 data sets    2 CPU seconds    larger at width 5 than in the GP limit
small  the paper's task, 3 data sets         4 CPU seconds    .18 in the GP limit, .81 at width 10
paper  10 data sets                          12 CPU seconds   .21 in the GP limit, .81 at width 10

The paper claims that the kernel of a finite network is better aligned with the task than that of
infinite width (the GP limit). The measure is the share of the labels that lies in the five leading
eigenvectors of the kernel. With 10 data sets it is .211 in the GP limit, .347 at width 100, .659 at
width 30 and .810 at width 10. The first eigenvector is the mean of the data and has no overlap with
the labels.
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
