r"""Attention maps below and above beta_c (arXiv 2505.24333, Figure 1a,b).

    python experiments/run.py --config=configs/two_failure_modes/fig1_maps.py:scale=small

scale  what                          time            expected entropy / ln T at beta 0.1 and 1.8
tiny   T=32, d=64, 2 seeds           5 CPU seconds   about 0.995 and 0.35
small  T=128, d=512, 10 seeds        10 CPU seconds  0.995 and 0.324 (exact theory 0.995, 0.322)
paper  T=512, d=768, 10 seeds        1 CPU minute

The paper shows one map each: uniform at beta = 0.1, sparse at 1.8. We add the entropy of a row. The
paper's limit is 1 - beta^2/2 = 0.995, and 0 above beta_c = sqrt(2): at T = 128 a third of the
entropy is still there.
"""

from configs import common

SECONDS = {"tiny": 5, "small": 10, "paper": 60}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    length, width, seeds = {
        "tiny": (32, 64, 2),
        "small": (128, 512, 10),
        "paper": (512, 768, 10),
    }[arguments["scale"]]
    settings = dict(betas=(0.1, 1.8), length=length, width=width)
    config = common.figure("two_failure_modes/fig1_maps", arguments, name="signal_maps", **settings)
    config.n_seeds = seeds
    return config
