r"""Do results depend on the distribution of the weights, or on heads and width? (arXiv 2505.24333)

    python experiments/run.py --config=configs/two_failure_modes/weight_laws.py:scale=small

scale  sizes                                     time            expected result
tiny   16 tokens, width 16, 2 networks           10 CPU seconds  finite numbers
small  heads of 512 tokens, encoders of width    2 CPU minutes   beta 1.16 to 1.23; cosines of all
       256 and 64 tokens, 20 networks                            three .20 and .94
paper  the same as small                         2 CPU minutes   the paper has no figure of it

The paper says that only the variance of the weights matters, and that the critical beta (the
sharpness at which attention condenses) does not depend on hyperparameters. At a finite length the
transition is smooth. The run measures the beta at which the entropy of a row is half of its
maximum, in random heads of several sizes. Then it gives all matrices normal, uniform or binary
entries of the same variance, and measures heads and deep encoders. The encoders are those of
Figures 1d and 1e.
"""

from configs import common

SECONDS = {"tiny": 10, "small": 120, "paper": 120}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    tiny = arguments["scale"] == "tiny"
    config = common.figure(
        "two_failure_modes/weight_laws",
        arguments,
        name="signal_weight_laws",
        # (width, heads) of single layers of attention
        sizes=((16, 1), (16, 4)) if tiny else ((64, 1), (256, 1), (256, 4), (256, 16), (1024, 1)),
        length=16 if tiny else 512,
        # (layers, beta, alpha_SA) of encoders
        panels=((2, 1.8, 1.0), (4, 0.02, 1.5)) if tiny else ((12, 1.8, 1.0), (60, 0.02, 1.5)),
        tokens=8 if tiny else 64,
        width=16 if tiny else 256,
        sigma2=0.2,  # variance of value and MLP weights, times the fan-in
        sigma_b2=4e-4,  # variance of MLP biases
    )
    config.n_seeds = 2 if tiny else 20
    return config
