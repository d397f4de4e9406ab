r"""Does the theory predict which encoders collapse at initialisation? (arXiv 2505.24333, Figure 1c)

    python experiments/run.py --config=configs/two_failure_modes/fig1_trainability.py:scale=small

scale  sizes                                        time             expected critical alpha
tiny   4 layers, width 32, 2 x 2 networks           10 CPU seconds   none: a test run
small  60 layers, 64 tokens, width 256,             25 CPU seconds   1.26 at low beta (limit: 1.23)
       4 x 6 networks
paper  60 layers, 128 tokens, width 600,            an hour          1.24 at low beta (limit: 1.23)
       6 x 6 networks

Beta is the sharpness of attention, alpha the strength of its skip connection. Below a critical
alpha all tokens become alike (rank collapse): their cosine after the last layer exceeds 1 -
epsilon. Above beta = sqrt(2) each query attends to few tokens (entropy collapse). The paper gives
no epsilon. Here it is 0.01; every value from 5e-4 to 0.067 agrees with the regimes of the three
networks in the paper's figure. The limit is the theory of infinitely many tokens.

Two formulas of the paper need a correction. The formula of a residual block must have the same
variance for value weights (sigma_V^2) and MLP weights (sigma_w^2). With sigma_V = 1 the paper's own
trainable networks (alpha 1.5 and 2) would collapse. And for weights of standard deviation init_std,
beta is init_std^2 x width / sqrt(ln T) for T tokens. The paper has the width of a head instead,
which gives 0.010 for BERT where the correct value is 0.123.
"""

from configs import common

SECONDS = {"tiny": 10, "small": 25, "paper": 3600}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    six_values = tuple(round(0.4 * i, 1) for i in range(1, 7))
    layers, length, width, heads, seeds, betas, alphas = {
        "tiny": (4, 16, 32, 1, 2, (0.02, 1.8), (0.2, 1.0)),
        "small": (60, 64, 256, 4, 4, (0.02, 0.8, 1.6, 2.2), (0.3, 0.6, 0.9, 1.2, 1.5, 1.8)),
        "paper": (60, 128, 600, 6, 10, six_values, six_values),
    }[arguments["scale"]]
    settings = dict(
        layers=layers,
        length=length,
        width=width,
        heads=heads,
        points=120,
        betas=betas,
        alphas=alphas,
        epsilon=0.01,
        alpha_mlp=1.0,
        sigma2=0.2,  # variance of value and MLP weights, times the fan-in
        sigma_b2=4e-4,  # variance of MLP biases
    )
    config = common.figure(
        "two_failure_modes/fig1_trainability", arguments, name="signal_trainability", **settings
    )
    config.n_seeds = seeds
    return config
