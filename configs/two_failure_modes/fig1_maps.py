r"""Is attention uniform below a critical beta and sparse above? (arXiv 2505.24333, Fig. 1a, b)

    python experiments/run.py --config=configs/two_failure_modes/fig1_maps.py:scale=small

scale  sizes                             time            expected entropy of a row / ln(tokens) at
                                                         beta 0.1 and 1.8
tiny   32 tokens, width 64, 2 seeds      5 CPU seconds   about 0.995 and 0.35
small  128 tokens, width 512, 10 seeds   10 CPU seconds  0.995 and 0.324 (theory: 0.995, 0.322)
paper  512 tokens, width 768, 10 seeds   1 CPU minute    not recorded

Beta is the sharpness of attention. The paper shows one attention map for each beta: uniform at 0.1,
sparse at 1.8. This run also measures the entropy of the rows. In the paper's limit of infinitely
many tokens the entropy is 1 - beta^2 / 2 = 0.995 at beta 0.1, and 0 above the critical sqrt(2).
With 128 tokens a third of the entropy remains.
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
