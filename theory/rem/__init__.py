"""Attention at initialisation as a Random Energy Model (arXiv 2505.24333, eqs. 13 to 15 and B.18).

`self_overlap`, `cross_overlap` and `attention_entropy` are the formulas. Their partner is
`theory.signal.measure`, which gives the same three numbers of the encoder's own attention, block by
block. The equations are in `overlaps`, the integrals at finite T in `tables`; `interpolated` has
the same numbers at every T, from shipped tables. Names are imported when they are used: the last of
the three needs numpy alone, and a command that needs no more starts in a tenth of the time.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from theory.rem.overlaps import (
        attention_entropy as attention_entropy,
        coordinate_rho as coordinate_rho,
        coordinate_s as coordinate_s,
        critical_beta as critical_beta,
        cross_overlap as cross_overlap,
        number_of_tokens as number_of_tokens,
        second_moment as second_moment,
        self_overlap as self_overlap,
        self_overlap_heuristic as self_overlap_heuristic,
        spectrum_radius as spectrum_radius,
    )


def __getattr__(name: str) -> Any:
    if name in ("integrals", "overlaps", "interpolated_tables"):
        return importlib.import_module(f"theory.rem.{name}")
    overlaps = importlib.import_module("theory.rem.overlaps")
    if name.startswith("_") or not hasattr(overlaps, name):
        raise AttributeError(f"module 'theory.rem' has no attribute {name!r}")
    return getattr(overlaps, name)
