"""Identities of tasks and models: a few values that say what they do, to store and compare.

Code is no identity: a class keeps its name and its fields when a function that it calls is edited.
So a run stores what its task drew and what its model computed, and is reused only if both are the
same today. Whole numbers are compared by a hash. Floats may differ in their last bits between two
machines, so an array of them is represented by one number, which is compared with a tolerance.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

TOLERANCE = 1e-4


def float_identity(values: npt.ArrayLike) -> float:
    """The distance of an array from noise of its size, which depends on each value and its place.

    Unlike a projection it has no cancellation, so its relative error is that of the values.
    """
    x = np.asarray(values, np.float64).ravel()
    noise = np.random.default_rng(0).standard_normal(x.size)
    scale = np.sqrt(np.mean(x**2)) if x.size else 0.0
    return float(np.linalg.norm(x - scale * noise))


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The reason why two identities {"examples": hash, "numbers": {name: float}} differ, or ""."""
    if before.get("examples") != now["examples"]:
        return "the first held-out examples are others"
    numbers = before.get("numbers", {})
    for name, value in now["numbers"].items():
        was = numbers.get(name)
        if was is None or not math.isclose(was, value, rel_tol=TOLERANCE, abs_tol=1e-9):
            return f"{name}: {was if was is None else format(was, '.6g')} then, {value:.6g} now"
    return ""


def rounded(identity: Mapping[str, Any]) -> dict[str, Any]:
    """An identity whose floats have four digits, for a hash, which has no tolerance."""
    numbers = {name: f"{value:.4g}" for name, value in identity["numbers"].items()}
    return {**identity, "numbers": numbers}
