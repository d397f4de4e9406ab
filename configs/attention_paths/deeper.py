r"""Does a network of three layers find its one good path among 27? (arXiv 2405.15926)

    python experiments/run.py --config=configs/attention_paths/deeper.py:scale=small

scale  sizes                             time             expected test accuracy
tiny   8 tokens, 20 features, width 5    7 CPU seconds    none: a test run
small  the paper's task, 3 data sets     10 CPU seconds   GP limit .877, width 10 .957
paper  3 data sets, 5 widths             1 CPU minute     GP limit .877, width 10 .957

Each of the three layers has three heads, of which one is good and two are random. The network finds
the good heads: each has the highest score of its layer. Path 111, which passes only good heads, has
the largest entry of the order parameter U. The GP limit is infinite width.

The paper shows such networks only for one-shot classification (configs/attention_paths/oneshot.py
with --config.model.heads=3,3,3 or 8,8), where the good heads are not known.
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
