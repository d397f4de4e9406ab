r"""Does rank collapse at initialisation imply vanishing gradients? (arXiv 2505.24333, Section 1)

    python experiments/run.py --config=configs/two_failure_modes/gradients.py:scale=small

scale  sizes                                     time            expected result
tiny   4 layers, width 16, 8 tokens, 2 seeds     5 CPU seconds   finite gradients in all regimes
small  60 layers, width 256, 64 tokens,          2 CPU minutes   see RESULTS.md
       20 seeds
paper  60 layers, width 600, 64 tokens,          10 CPU minutes  the paper has no figure of it
       30 seeds

The paper says that rank collapse implies vanishing gradients. The run measures the gradient of
every block of deep encoders. Depth, beta (the sharpness of attention) and alpha (the strength of
its skip connection) of the first two regimes are those of Figure 1d: 60 layers collapse at alpha 1
and not at alpha 2. The loss is the inner product of the output with a random matrix.
"""

from configs import common

SECONDS = {"tiny": 5, "small": 120, "paper": 600}
# regime -> (beta, alpha_SA)
REGIMES = {
    "trainable": (0.02, 2.0),
    "rank_collapse": (0.02, 1.0),
    "entropy_collapse": (1.8, 2.0),
}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    layers, length, width, heads, seeds = {
        "tiny": (4, 8, 16, 2, 2),
        "small": (60, 64, 256, 4, 20),
        "paper": (60, 64, 600, 6, 30),
    }[arguments["scale"]]
    config = common.figure(
        "two_failure_modes/gradients",
        arguments,
        name="signal_gradients",
        regimes=REGIMES,
        layers=layers,
        length=length,
        width=width,
        heads=heads,
        sigma2=0.2,  # variance of value and MLP weights, times the fan-in
        sigma_b2=4e-4,  # variance of MLP biases
    )
    config.n_seeds = seeds
    return config
