r"""One layer of a random mixing network: mean and covariance of Phi' against their exact formulas.

    python experiments/run.py --config=configs/mixit/sde_one_step.py:scale=small

scale  what                                       time             expected numbers
tiny   m=4, n=20, 20,000 samples                  5 CPU seconds    mean |z| < 4, rms z .6 to 1.4
small  m=4, n=20, a million samples, causal too   11 CPU seconds   the same
paper  m=4, 6, 8, n=100, a million samples        minutes          the same

The paper's (2.4) prints the drift without the identity, and its limit keeps the leading order in
1/n. With the identity and the finite-n covariance (theory.covariance_sde.coefficients) the
difference is noise. The leading order has an error of about 1/n, `covariance_error_leading_order`.
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
