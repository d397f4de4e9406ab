r"""The kernels of single paths, and what the network makes of them.

    python experiments/run.py --config=configs/attention_paths/path_kernels.py:scale=small

scale  what                            time             expected
tiny   8 tokens, 20 features, P = 40   @T@
small  the paper's task, P = 100       @S@
paper  the same                        @P@

The paper claims that K = sum U C / 4 combines path kernels into one that separates the classes.
Expected: alignment Y'KY / (P |K|) .03 in the GP limit, .06 at N=10; the good path's kernel shows
the two classes as blocks, those of a1, denoising and a2 do not. Colours leave the diagonal out.
"""

from configs import common


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
