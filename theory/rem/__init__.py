"""Attention at initialisation as a Random Energy Model (arXiv 2505.24333, eqs. 13 to 15 and B.18).

`self_overlap`, `cross_overlap` and `attention_entropy` are the formulas. Their partner is
`theory.signal.measure`, which gives the same three numbers of the encoder's own attention, block by
block. The equations are in `overlaps`, the integrals at finite T in `tables`.
"""

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
