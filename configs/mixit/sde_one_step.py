r"""Do one-layer random mixing networks follow the exact formulas of mean and covariance? (MixiT)

    python experiments/run.py --config=configs/mixit/sde_one_step.py:scale=small

scale  sizes                                  time             expected difference / standard error
tiny   4 tokens, width 20, 20,000 samples     5 CPU seconds    below 4 for means, rms .6 to 1.4 for
                                                               covariances
small  4 tokens, width 20, 1 million          11 CPU seconds   the same
       samples, also with a causal mask
paper  4, 6 and 8 tokens, width 100,          minutes          the same
       1 million samples

The run samples Phi, the matrix of inner products of tokens, after one layer. The paper's equation
(2.4) omits the identity in the drift, and its limit keeps only the leading order in 1/width. With
the identity and the covariance at finite width (theory.covariance_sde.coefficients), samples and
formulas differ only by sampling noise. `covariance_error_leading_order` is the error of the leading
order, about 1/width.
"""

from configs import common

SECONDS = {"tiny": 5, "small": 11, "paper": 180}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    config = common.figure(
        "mixit/sde_one_step",
        arguments,
        name="sde_one_step",
        lengths=(4,),
        width=20,
        samples=20_000,
        causal_too=True,
    )
    if config.arguments.scale == "tiny":
        config.figure.causal_too = False
    else:
        config.figure.samples = 1_000_000
    if config.arguments.scale == "paper":
        config.figure.update(lengths=(4, 6, 8), width=100)
    return config
