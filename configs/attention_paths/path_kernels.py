r"""Does the network combine the kernels of its paths into one that separates the classes?

    python experiments/run.py --config=configs/attention_paths/path_kernels.py:scale=small

scale  sizes                               time             expected alignment with the labels
tiny   8 tokens, 20 features, 40 examples  2 CPU seconds    grows as the width falls
small  the paper's task, 100 examples      3 CPU seconds    GP limit .030, width 10 .056
paper  the same as small                   3 CPU seconds    the same

The paper (arXiv 2405.15926) claims that K = sum U C / 4, the sum of the kernels C of the four paths
weighted by the order parameter U, separates the two classes. The alignment is Y'KY / (P |K|) for P
labels Y. For single paths it is .063 (good, the path that computes the label), .059 and .014 (a1
and a2, two adversarial paths) and .002 (denoising, the path that sees only the noise). The GP limit
is infinite width. The figure shows the kernels; the classes are visible as blocks for the good path
and for width 10. The colour scale leaves out the diagonal. All numbers are those of a single data
set.
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
