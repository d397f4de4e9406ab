"""The signal of an encoder at initialisation; see `propagation` for the equations."""

from theory.signal.network import Signal, measure, predict
from theory.signal.propagation import (
    LARGEST_ALPHA,
    OVERLAPS,
    Block,
    FixedPoints,
    block_map,
    critical_alpha,
    effective_beta,
    effective_beta_paper,
    fixed_points,
    overlap_pair,
    propagate,
)

__all__ = [
    "Block",
    "FixedPoints",
    "LARGEST_ALPHA",
    "OVERLAPS",
    "Signal",
    "block_map",
    "critical_alpha",
    "effective_beta",
    "effective_beta_paper",
    "fixed_points",
    "measure",
    "overlap_pair",
    "predict",
    "propagate",
]
