"""Draws in the format that other tools read."""

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxformer.core.errors import UserError

# What ArviZ calls the numbers of NUTS.
NAMES = {"num_steps": "n_steps", "accept_prob": "acceptance_rate"}


def inference_data(
    U: np.ndarray, theta: np.ndarray | None, statistics: Mapping[str, np.ndarray]
) -> Any:
    """ArviZ's InferenceData: U and theta by chain, and what NUTS says of itself."""
    try:
        import arviz
    except ImportError:
        raise UserError("InferenceData needs the package arviz: pip install arviz.") from None
    chains, draws = statistics["energy"].shape
    if len(U) != chains * draws:
        raise UserError(
            f"InferenceData needs all draws of every chain, {chains} x {draws}; got {len(U)}."
        )
    held = {"U": U} if theta is None else {"U": U, "theta": theta}
    groups = {
        "posterior": {n: x.reshape(chains, draws, *x.shape[1:]) for n, x in held.items()},
        "sample_stats": {NAMES.get(n, n): np.asarray(x) for n, x in statistics.items()},
    }
    # Until version 1 the groups were arguments; since then they are one.
    if "posterior" in inspect.signature(arviz.from_dict).parameters:
        return arviz.from_dict(**groups)
    return arviz.from_dict(groups)
