"""Attention at initialisation as a Random Energy Model (arXiv 2505.24333, eqs. 13 to 15 and B.18).

`self_overlap`, `cross_overlap` and `attention_entropy` are the theory. `theory.signal.measure`
measures the same three quantities in random encoders, block by block.

    overlaps             the functions of this package, in jax
    integrals            exact integrals at finite T, and Chebyshev tables of them for one T
    interpolated_tables  the same averages at every T from precomputed tables, in NumPy
    limit                the paper's limit and heuristic, in NumPy or jax

Letters: T tokens, rho cosine of two tokens, beta score scale, A attention weights, Y_q and Y_p the
overlaps of rows of A, s standard deviation of the scores within a row. Suffixes of array names: K
rows, M and R terms of a Chebyshev series. Names are imported on first use, so that a
command that needs NumPy alone does not import jax.
"""

from typing import TYPE_CHECKING

from jaxformer.core import lazy

if TYPE_CHECKING:
    from theory.rem.overlaps import (
        attention_entropy as attention_entropy,
        critical_beta as critical_beta,
        cross_overlap as cross_overlap,
        number_of_tokens as number_of_tokens,
        second_moment as second_moment,
        self_overlap as self_overlap,
        self_overlap_heuristic as self_overlap_heuristic,
        spectrum_radius as spectrum_radius,
    )

_NAMES = (
    "attention_entropy",
    "critical_beta",
    "cross_overlap",
    "number_of_tokens",
    "second_moment",
    "self_overlap",
    "self_overlap_heuristic",
    "spectrum_radius",
)
__getattr__, __dir__ = lazy.names(
    __name__, {name: f"theory.rem.overlaps:{name}" for name in _NAMES}
)
