"""The signal of an encoder at initialisation (arXiv 2505.24333).

The pair is `predict` and `measure`; both give a `Signal`, the second from the encoder blocks of
`jaxformer.models.encoder`. `propagate` and `critical_alpha` are the cosines alone and the boundary
of rank collapse. The equations are in `propagation`.
"""

from theory.signal.network import Signal as Signal, measure as measure, predict as predict
from theory.signal.propagation import (
    LARGEST_ALPHA as LARGEST_ALPHA,
    OVERLAPS as OVERLAPS,
    Block as Block,
    FixedPoints as FixedPoints,
    block_map as block_map,
    critical_alpha as critical_alpha,
    effective_beta as effective_beta,
    effective_beta_paper as effective_beta_paper,
    fixed_points as fixed_points,
    overlap_pair as overlap_pair,
    propagate as propagate,
)
