"""Coordinates of the tables of overlaps, shared by their construction and their use.

A table is a Chebyshev series on [0, 1] in each of up to three coordinates:

    spread   1 - 1/sqrt(1 + (s/c)^2),  c = SCALE sqrt(ln T),  s^2 = beta^2 (1-rho) ln T
    cosine   sqrt(1 - rho + SOFTEN), mapped linearly to [0, 1]
    length   ln ln T, mapped linearly to [0, 1] for T from 2 to MAX_TABULATED_LENGTH

The spread is even in s and finite at s = infinity. The pair table covers s <= REACH sqrt(ln T),
where the spread is PAIR_END, and continues linearly.
"""

from types import ModuleType
from typing import Any

import numpy as np

SCALE = 0.5  # c / sqrt(ln T)
REACH = 6.0  # largest beta sqrt(1-rho) of the pair table
SOFTEN = 0.02  # keeps the gradient of the cosine coordinate finite at rho = 1
MAX_TABULATED_LENGTH = 2.0**24  # tokens
# Spread coordinate at the end of the pair table.
PAIR_END = 1 - 1 / np.sqrt(1 + (REACH / SCALE) ** 2)
_COSINE_LOW, _COSINE_HIGH = SOFTEN**0.5, (1 + SOFTEN) ** 0.5
_LENGTH_LOW, _LENGTH_HIGH = np.log(np.log(2.0)), np.log(np.log(MAX_TABULATED_LENGTH))


def spread_coordinate(variance: Any, xp: ModuleType = np) -> Any:
    """Returns the spread coordinate in [0, 1) of variance = s^2 / ln T = beta^2 (1-rho)."""
    return 1 - 1 / xp.sqrt(1 + variance / SCALE**2)


def spread_at(x: np.ndarray) -> np.ndarray:
    """Returns s / sqrt(ln T) at the spread coordinate x."""
    stretch = 1 / (1 - x)
    return SCALE * np.sqrt(stretch**2 - 1)


def cosine_coordinate(rho: Any, xp: ModuleType = np) -> Any:
    """Returns the cosine coordinate in [0, 1] of rho in [0, 1]."""
    return (xp.sqrt(1 - rho + SOFTEN) - _COSINE_LOW) / (_COSINE_HIGH - _COSINE_LOW)


def cosine_at(y: np.ndarray) -> np.ndarray:
    """Returns rho at the cosine coordinate y."""
    return 1 + SOFTEN - (_COSINE_LOW + (_COSINE_HIGH - _COSINE_LOW) * y) ** 2


def length_coordinate(T: np.ndarray) -> np.ndarray:
    """Returns the length coordinate in [0, 1] of T tokens, clipped to the tabulated lengths."""
    log = np.log(np.log(np.clip(T, 2, MAX_TABULATED_LENGTH)))
    return (log - _LENGTH_LOW) / (_LENGTH_HIGH - _LENGTH_LOW)


def length_at(x: np.ndarray) -> np.ndarray:
    """Returns T at the length coordinate x."""
    return np.exp(np.exp(_LENGTH_LOW + (_LENGTH_HIGH - _LENGTH_LOW) * x))
