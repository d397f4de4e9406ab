r"""Does the theory predict the eigenvalues of random attention? (arXiv 2505.24333, Figure C.1)

    python experiments/run.py --config=configs/two_failure_modes/figC1_spectrum.py:scale=small

scale  sizes                             time             expected radius of the bulk at beta 0.5
                                                          and 1.8
tiny   64 tokens, width 64, 1 seed       5 CPU seconds    grows with beta
small  256 tokens, width 512, 8 seeds    10 CPU seconds   near the theory's 0.104 and 0.617
paper  512 tokens, width 512, 8 seeds    2 CPU minutes    larger at small beta: width = tokens

One eigenvalue is 1 at every beta, the sharpness of attention. All others, the bulk, lie within a
circle. If the width d is far above the number of tokens T, the radius is sqrt(Y_q - Y_p). Here Y_q
is the overlap of an attention row with itself, Y_p that of the rows of two tokens. If d = T, the
radius is sqrt(1 + T/d) times larger at small beta. Each point of the figure is a mean over eight
matrices.
"""

from configs import common

SECONDS = {"tiny": 5, "small": 10, "paper": 120}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    length, width, seeds = {
        "tiny": (64, 64, 1),
        "small": (256, 512, 8),
        "paper": (512, 512, 8),
    }[arguments["scale"]]
    settings = dict(betas=(0.2, 0.5, 1.0, 1.8, 3.0), length=length, width=width)
    config = common.figure(
        "two_failure_modes/figC1_spectrum", arguments, name="signal_spectrum", **settings
    )
    config.n_seeds = seeds
    return config
