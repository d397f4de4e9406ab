"""The covariance SDE of MixiT, solved and measured; see `coefficients` for the equations."""

from theory.covariance_sde.coefficients import (
    covariance,
    drift,
    mean,
    mean_trace,
    one_step_covariance,
    one_step_mean,
)
from theory.covariance_sde.network import measure
from theory.covariance_sde.solver import correlation, factor_step, log_trace, overflowed, predict

__all__ = [
    "correlation",
    "covariance",
    "drift",
    "factor_step",
    "log_trace",
    "mean",
    "mean_trace",
    "measure",
    "one_step_covariance",
    "one_step_mean",
    "overflowed",
    "predict",
]
