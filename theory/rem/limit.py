"""The self-overlap Y_q of arXiv 2505.24333: the limit T -> infinity and the finite-size heuristic.

`xp` is the array namespace, numpy or jax.numpy. Importing this module does not import jax.
"""

from types import ModuleType
from typing import Any

import numpy as np


def critical_ratio_squared(beta: Any, rho: Any) -> Any:
    """Returns (beta / beta_c)^2. It has no square root: its gradient is finite at rho = 1."""
    return beta**2 * (1 - rho) / 2


def limit_overlap(beta: Any, rho: Any, xp: ModuleType = np) -> Any:
    """Returns Y_q for T -> infinity (eq. 13): 0 below beta_c, 1 - beta_c / beta above."""
    square = critical_ratio_squared(beta, rho)
    return xp.where(square > 1, 1 - 1 / xp.sqrt(xp.where(square > 1, square, 1.0)), 0.0)


def heuristic_overlap(beta: Any, rho: Any, T: float, xp: ModuleType = np) -> Any:
    """Returns T^{-1 + (beta/beta_c)^2} below beta_c (eq. 15) and the limit (eq. 13) above."""
    square = critical_ratio_squared(beta, rho)
    below = xp.exp((xp.minimum(square, 1) - 1) * np.log(T))
    return xp.where(square < 1, below, limit_overlap(beta, rho, xp))
