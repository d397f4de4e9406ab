r"""A wider network: two layers of eight heads, 64 paths, one good head per layer.

    python experiments/run.py --config=configs/attention_paths/wider.py:scale=small

scale  what                             time             expected
tiny   8 tokens, 20 features, N = 5     6 CPU seconds    it runs
small  the paper's task, 3 datasets     20 CPU seconds   GP .676, N=10 .789
paper  3 datasets, 5 widths             1 CPU minute     as at small

The paper shows such networks for one-shot classification only (see oneshot.py, heads=3,3,3 and
8,8); here the good heads are known, so the figure shows whether U finds them among random ones. It
does at N=10: path 11 has the largest U. But 49 of the 64 paths pass no good head, and they cost
accuracy: with the four paths of accuracy.py it is .954.
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
