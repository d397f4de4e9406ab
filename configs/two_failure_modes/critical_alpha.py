r"""Must residuals be stronger in deeper encoders to avoid rank collapse? (arXiv 2505.24333)

    python experiments/run.py --config=configs/two_failure_modes/critical_alpha.py:scale=small

scale  sizes                                      time             expected critical alpha
tiny   3 and 6 layers, width 32, 2 seeds          10 CPU seconds   grows with depth
small  12 to 120 layers, 64 tokens, width 256,    2 CPU minutes    0.63 at 12 layers, 1.26 at 60
       6 seeds
paper  12 to 120 layers, 128 tokens, width 600,   20 CPU minutes   0.61 at 12 layers, 1.24 at 60
       10 seeds

Alpha is the strength of the skip connection around attention. Below the critical alpha all tokens
become alike (rank collapse): their cosine after the last layer exceeds 1 - epsilon. The run
measures the cosine at several alphas and interpolates. Beta is the sharpness of attention.

The paper claims that the critical alpha grows with depth, while the critical beta does not depend
on the network. To test this, the run compares the overlap Y_q of an attention row with itself at
two widths.
"""

from configs import common

SECONDS = {"tiny": 10, "small": 120, "paper": 1200}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    paper_depths = (12, 24, 60, 120)
    coarse_alphas = tuple(i / 10 for i in range(4, 21))
    fine_alphas = tuple(i / 20 for i in range(8, 41))
    depths, length, width, heads, seeds, alphas, widths = {
        "tiny": ((3, 6), 16, 32, 1, 2, (0.1, 0.5, 1.0), (32, 64)),
        "small": (paper_depths, 64, 256, 4, 6, coarse_alphas, (128, 512)),
        "paper": (paper_depths, 128, 600, 6, 10, fine_alphas, (128, 600)),
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
        sigma2=0.2,  # variance of value and MLP weights, times the fan-in
        sigma_b2=4e-4,  # variance of MLP biases
    )
    config.n_seeds = seeds
    return config
