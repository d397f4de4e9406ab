"""Attention at initialisation as a Random Energy Model; see `overlaps` for the equations."""

from theory.rem.overlaps import (
    attention_entropy,
    coordinate_rho,
    coordinate_s,
    critical_beta,
    cross_overlap,
    mean_log_partition,
    number_of_tokens,
    second_moment,
    self_overlap,
    self_overlap_heuristic,
    spectrum_radius,
)

__all__ = [
    "attention_entropy",
    "coordinate_rho",
    "coordinate_s",
    "critical_beta",
    "cross_overlap",
    "mean_log_partition",
    "number_of_tokens",
    "second_moment",
    "self_overlap",
    "self_overlap_heuristic",
    "spectrum_radius",
]
