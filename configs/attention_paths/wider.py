r"""Does a network of eight heads find its one good path among 64? (arXiv 2405.15926)

    python experiments/run.py --config=configs/attention_paths/wider.py:scale=small

scale  sizes                             time             expected test accuracy
tiny   8 tokens, 20 features, width 5    6 CPU seconds    none: a test run
small  the paper's task, 3 data sets     20 CPU seconds   GP limit .676, width 10 .789
paper  3 data sets, 5 widths             1 CPU minute     GP limit .676, width 10 .789

Each of the two layers has eight heads, of which one is good and seven are random. At width 10 the
network finds the good heads: path 11, which passes both, has the largest entry of the order
parameter U. But 49 of the 64 paths pass no good head and cost accuracy: with the four paths of
configs/attention_paths/accuracy.py the accuracy is .954. The GP limit is infinite width.

The paper shows such networks only for one-shot classification (configs/attention_paths/oneshot.py
with --config.model.heads=3,3,3 or 8,8), where the good heads are not known.
"""

from configs.attention_paths import deeper

SECONDS = {"tiny": 6, "small": 20, "paper": 60}

DESIGN = (
    ("previous", *["random"] * 7),
    ("uniform", *["random"] * 7),
)


def get_config(arg: str = ""):
    config = deeper.get_config(arg)
    config.name = "attention_paths/wider"
    config.figure.task.design = DESIGN
    return config
