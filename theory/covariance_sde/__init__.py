"""The covariance SDE of MixiT (arXiv 2506.01115, Theorem 2.1): the signal of a random network.

The pair is `predict`, which solves the SDE whose coefficients are `drift` and `covariance`, and
`measure`, which runs finite networks built from the model's mixing functions (`Wishart` by default,
`Network`, or the whole `Decoder`). Both give Phi at tau = depth/width. `Mixing` says which variant
of MixiT is meant. The equations are in `coefficients`, the solver's in `solver`.
"""

from theory.covariance_sde.coefficients import (
    Mixing as Mixing,
    covariance as covariance,
    drift as drift,
    mean as mean,
    mean_trace as mean_trace,
    one_step_covariance as one_step_covariance,
    one_step_mean as one_step_mean,
    square_root as square_root,
)
from theory.covariance_sde.decoder import Decoder as Decoder
from theory.covariance_sde.finite_networks import (
    Network as Network,
    Wishart as Wishart,
    measure as measure,
)
from theory.covariance_sde.solver import (
    Euler as Euler,
    Factor as Factor,
    correlation as correlation,
    factor_step as factor_step,
    log_trace as log_trace,
    overflowed as overflowed,
    predict as predict,
)
