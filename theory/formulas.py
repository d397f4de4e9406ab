"""Formulas that theory needs twice, in numpy and in jax: `xp` is the one or the other."""

from types import ModuleType
from typing import Any

import numpy as np


def arc_cosine(c: Any, xp: ModuleType = np) -> Any:
    """f(c) = (sqrt(1-c^2) + c (pi - arccos c)) / pi; f(0) = 1/pi, f(1) = 1.

    E relu(u) relu(v) = f(c) q / 2 of two Gaussians of variance q and correlation c.
    """
    return (xp.sqrt(1 - c**2) + c * (xp.pi - xp.arccos(c))) / xp.pi


def ratio(p: Any, q: Any, xp: ModuleType = np) -> Any:
    """p / q, and 1 where q vanishes (the paper's convention at rho = 0 without a residual)."""
    return xp.where(q > 0, p / xp.where(q > 0, q, 1.0), 1.0)
