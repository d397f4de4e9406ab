r"""A wider network: two layers of eight heads, 64 paths, one good head a layer.

    python experiments/run.py --config=configs/attention_paths/wider.py:scale=small

scale  what                             time             expected
tiny   8 tokens, 20 features, N = 5     @T@
small  the paper's task, one dataset    @S@
paper  3 datasets, 5 widths             @P@

The paper shows such networks for one-shot classification only (see oneshot.py, heads=3,3,3 and
8,8); here the good heads are known, so one sees whether U finds them among random ones. @E@
"""

from configs import common

DESIGN = (
    ("previous", *["random"] * 7),
    ("uniform", *["random"] * 7),
)


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    tiny = arguments["scale"] == "tiny"
    config = common.figure(
        "attention_paths/wider",
        arguments,
        name="paths_networks",
        task=common.hidden_markov(arguments["scale"], design=DESIGN),
        widths=(5, 200) if tiny else (10, 100, 1000),
        temperature=0.01,
    )
    if arguments["scale"] == "paper":
        config.figure.widths = (10, 30, 100, 300, 1000)
        config.n_seeds = 3
    return config
