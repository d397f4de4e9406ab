r"""The kernels of single paths, and their combination in the network.

    python experiments/run.py --config=configs/attention_paths/path_kernels.py:scale=small

scale  what                            time             expected
tiny   8 tokens, 20 features, P = 40   2 CPU seconds    alignment grows as N falls
small  the paper's task, P = 100       3 CPU seconds    alignment .030 GP, .056 N=10
paper  the same                        3 CPU seconds    the same

The paper claims that K = sum U C / 4 combines path kernels into one that separates the classes.
Expected (dataset 0): alignment Y'KY / (P |K|) .030 in the GP limit, .056 at N=10; of single paths
good .063, a1 .059, a2 .014, denoising .002. The good path's kernel and that of N=10 show the two
classes as blocks. The colour scale leaves the diagonal out.
"""

from configs import common

SECONDS = {"tiny": 2, "small": 3, "paper": 3}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    tiny = arguments["scale"] == "tiny"
    config = common.figure(
        "attention_paths/path_kernels",
        arguments,
        name="paths_kernels",
        task=common.hidden_markov(arguments["scale"]),
        widths=(20, 5) if tiny else (100, 10),
        temperature=0.01,
    )
    return config
