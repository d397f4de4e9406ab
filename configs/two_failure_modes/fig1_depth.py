r"""Does the theory predict the cosine of tokens by layer? (arXiv 2505.24333, Figures 1d, 1e, A.1)

    python experiments/run.py --config=configs/two_failure_modes/fig1_depth.py:scale=small

scale  sizes                                     time             expected largest error of exact
                                                                  theory at beta 0.02
tiny   6 layers, width 48, 2 seeds               10 CPU seconds   below 0.2: narrow networks vary
small  60 and 12 layers, width 600, 20 seeds     3 CPU minutes    see RESULTS.md
paper  60 and 12 layers, width 600, 30 seeds     10 CPU minutes   0.011 at alpha 1 (limit: 0.086),
                                                                  0.010 at alpha 1.5 (limit: 0.040)

Beta is the sharpness of attention, alpha the strength of its skip connection. The paper claims that
tokens become equal within 60 layers at beta 0.02 and alpha 1, but not at alpha 1.5 and 2, and not
at beta 1.8 with 12 layers. This run confirms these claims. The paper sends TinyStories through 10
networks, this run random directions. Error bars are standard deviations in both.

The paper's theory is the limit of infinitely many tokens (dashed). The average for 64 tokens,
called exact here, is 4 to 8 times closer to the networks at beta 0.02. At beta 1.8 and alpha 1.5
and 2 the limit is closer (errors 0.005 and 0.002 against 0.008 and 0.007, 3 seeds). Both theories
assume infinite width. At width 256 and below, the error of order 1/width has the opposite sign to
the error of the limit and can cancel it.
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
        sigma2=0.2,  # variance of value and MLP weights, times the fan-in
        sigma_b2=4e-4,  # variance of MLP biases
        **sizes,
    )
    config.n_seeds = dict(tiny=2, small=20, paper=30)[arguments["scale"]]
    return config
