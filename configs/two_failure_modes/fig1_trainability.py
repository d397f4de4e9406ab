r"""The trainability diagram, with measured networks (arXiv 2505.24333, Figure 1c).

    python experiments/run.py --config=configs/two_failure_modes/fig1_trainability.py:scale=small

scale  what                                 time             expected alpha_c at low beta
tiny   L=4, d=32, 2x2 networks              10 CPU seconds   see result.json
small  L=60, T=64, d=256, 4x6 networks      25 CPU seconds   1.26 (limit: 1.23)
paper  L=60, T=128, d=600, 6x6 networks     an hour          1.24 (limit: 1.23)

Rank collapse below alpha_c(beta; L), entropy collapse right of beta_c(0) = sqrt(2). The paper gives
no threshold; collapse is rho_L > 1 - epsilon here, epsilon = 0.01, and any epsilon from 5e-4 to
0.067 agrees with its three networks. sigma_V^2 = sigma_w^2 must also stand in the residual step:
with the sigma_V = 1 of the paper's algebra its own trainable networks (alpha 1.5 and 2) would
collapse. beta of a standard initialisation is init_std^2 d / sqrt(ln T), not the paper's init_std^2
d_head / sqrt(ln T): 0.123 for BERT, where the paper's formula gives 0.010.
"""

from configs import common

SECONDS = {"tiny": 10, "small": 25, "paper": 3600}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    many = tuple(round(0.4 * i, 1) for i in range(1, 7))
    layers, length, width, heads, seeds, betas, alphas = {
        "tiny": (4, 16, 32, 1, 2, (0.02, 1.8), (0.2, 1.0)),
        "small": (60, 64, 256, 4, 4, (0.02, 0.8, 1.6, 2.2), (0.3, 0.6, 0.9, 1.2, 1.5, 1.8)),
        "paper": (60, 128, 600, 6, 10, many, many),
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
        sigma2=0.2,
        sigma_b2=4e-4,
    )
    config = common.figure(
        "two_failure_modes/fig1_trainability", arguments, name="signal_trainability", **settings
    )
    config.n_seeds = seeds
    return config
