"""Conversion of posterior draws to ArviZ's InferenceData."""

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxformer.core.errors import UserError

# NumPyro's names of the statistics of NUTS, and ArviZ's names.
ARVIZ_NAMES = {"num_steps": "n_steps", "accept_prob": "acceptance_rate"}


def inference_data(
    U: np.ndarray, theta: np.ndarray | None, statistics: Mapping[str, np.ndarray]
) -> Any:
    """Returns the draws of U and theta and the statistics of NUTS as ArviZ's InferenceData.

    Args:
        U: order parameters, (chains * draws, D, D), one Markov chain after the other.
        theta: Bartlett coordinates, (chains * draws, size), or None.
        statistics: arrays of shape (chains, draws).
    """
    try:
        import arviz
    except ImportError:
        raise UserError(
            "InferenceData needs ArviZ: pip install arviz, or pip install 'jaxformer[diagnostics]'."
        ) from None
    chains, draws = statistics["energy"].shape
    if len(U) != chains * draws:
        raise UserError(
            f"InferenceData needs all draws of every chain, {chains} x {draws}; got {len(U)}."
        )
    variables = {"U": U} if theta is None else {"U": U, "theta": theta}
    groups = {
        "posterior": {n: x.reshape(chains, draws, *x.shape[1:]) for n, x in variables.items()},
        "sample_stats": {ARVIZ_NAMES.get(n, n): np.asarray(x) for n, x in statistics.items()},
    }
    # Before version 1 of ArviZ, `from_dict` took each group as an argument; now it takes one dict.
    if "posterior" in inspect.signature(arviz.from_dict).parameters:
        return arviz.from_dict(**groups)
    return arviz.from_dict(groups)
