r"""Cosine of tokens against depth (arXiv 2505.24333, Figure 1d,e; A.1 d,e).

    python experiments/run.py --config=configs/two_failure_modes/fig1_depth.py:scale=small

scale  what                              time             expected largest error of the exact theory
tiny   L=6, d=48, 2 seeds                10 CPU seconds   below 0.2: narrow networks fluctuate
small  L=60 and 12, d=600, 20 seeds      3 CPU minutes    see RESULTS.md
paper  L=60 and 12, d=600, 30 seeds      10 CPU minutes   0.011 at alpha=1 (limit 0.086),
                                                          0.010 at 1.5 (limit 0.040)

The paper claims: at beta = 0.02 alpha_SA = 1 collapses after 60 layers, 1.5 and 2 do not; at beta =
1.8 and 12 layers none does. We find the same. Its theory is the limit T -> infinity (dashed); the
exact average at T = 64 is 4 to 8 times closer with 30 seeds at beta = 0.02. At beta = 1.8, alpha =
1.5 and 2, the limit is closer with 3 seeds (0.005 and 0.002 against 0.008 and 0.007). The exact
theory is still the limit of infinite width: at d = 256 and below an error of order 1/d has the
other sign and can cancel that of the limit. The paper feeds TinyStories through 10 networks, we
random directions; error bars are standard deviations in both.
"""

from configs import common

SECONDS = {"tiny": 10, "small": 180, "paper": 600}
# A panel is (layers, beta, the values of alpha_SA).
PANELS = ((60, 0.02, (1.0, 1.5, 2.0)), (12, 1.8, (1.0, 1.5, 2.0)))
TINY_PANELS = ((6, 0.02, (0.5, 1.0)), (4, 1.8, (1.0,)))


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    tiny = arguments["scale"] == "tiny"
    sizes = dict(length=16, width=48, heads=2) if tiny else dict(length=64, width=600, heads=6)
    config = common.figure(
        "two_failure_modes/fig1_depth",
        arguments,
        name="signal_depth",
        panels=TINY_PANELS if tiny else PANELS,
        alpha_mlp=1.0,
        sigma2=0.2,
        sigma_b2=4e-4,
        **sizes,
    )
    config.n_seeds = dict(tiny=2, small=20, paper=30)[arguments["scale"]]
    return config
