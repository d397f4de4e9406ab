r"""A deeper network: three layers of three heads, 27 paths, one good head per layer.

    python experiments/run.py --config=configs/attention_paths/deeper.py:scale=small

scale  what                             time             expected
tiny   8 tokens, 20 features, N = 5     7 CPU seconds    it runs
small  the paper's task, 3 datasets     10 CPU seconds   GP .877, N=10 .957
paper  3 datasets, 5 widths             1 CPU minute     as at small

The paper shows such networks for one-shot classification only (see oneshot.py, heads=3,3,3 and
8,8); here the good heads are known, so the figure shows whether U finds them among random ones. It
does: the good head of every layer has the highest score of its layer, and path 111 the largest U.
"""

from configs import common

SECONDS = {"tiny": 7, "small": 10, "paper": 60}

DESIGN = (
    ("previous", "random", "random"),
    ("uniform", "random", "random"),
    ("uniform", "random", "random"),
)


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    tiny = arguments["scale"] == "tiny"
    config = common.figure(
        "attention_paths/deeper",
        arguments,
        name="paths_networks",
        task=common.hidden_markov(arguments["scale"], design=DESIGN),
        widths=(5, 200) if tiny else (10, 100, 1000),
        temperature=0.01,
    )
    config.n_seeds = 1 if tiny else 3
    if arguments["scale"] == "paper":
        config.figure.widths = (10, 30, 100, 300, 1000)
    return config
