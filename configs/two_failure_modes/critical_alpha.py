r"""The critical residual strength against depth (arXiv 2505.24333, abstract and Section 1).

    python experiments/run.py --config=configs/two_failure_modes/critical_alpha.py:scale=small

scale  what                                   time             expected alpha_c
tiny   L=3, 6; d=32, 2 seeds                  10 CPU seconds   grows with depth
small  L=12 to 120, T=64, d=256, 6 seeds      2 CPU minutes    0.63 at 12 layers, 1.26 at 60
paper  the same, T=128, d=600, 10 seeds       20 CPU minutes   0.61 and 1.24

The paper claims that beta_c does not depend on the network, alpha_c grows with its depth. alpha_c
of a network is where its cosine after L layers falls below 1 - epsilon, interpolated between the
measured alphas. Y_q at two widths shows whether attention depends on the network.
"""

from configs import common

SECONDS = {"tiny": 10, "small": 120, "paper": 1200}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    depths, coarse, fine = (12, 24, 60, 120), (i / 10 for i in range(4, 21)), range(8, 41)
    depths, length, width, heads, seeds, alphas, widths = {
        "tiny": ((3, 6), 16, 32, 1, 2, (0.1, 0.5, 1.0), (32, 64)),
        "small": (depths, 64, 256, 4, 6, tuple(coarse), (128, 512)),
        "paper": (depths, 128, 600, 6, 10, tuple(i / 20 for i in fine), (128, 600)),
    }[arguments["scale"]]
    config = common.figure(
        "two_failure_modes/critical_alpha",
        arguments,
        name="signal_critical",
        depths=depths,
        length=length,
        width=width,
        heads=heads,
        alphas=alphas,
        beta=0.02,
        epsilon=0.01,
        widths=widths,
        overlap_betas=(1.0, 2.0),
        alpha_mlp=1.0,
        sigma2=0.2,
        sigma_b2=4e-4,
    )
    config.n_seeds = seeds
    return config
