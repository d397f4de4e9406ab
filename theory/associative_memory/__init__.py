"""Linear associative memory with noise; see `flow` for the equations."""

from theory.associative_memory.flow import (
    KINDS,
    Flow,
    Memory,
    asymptotic_constant,
    cross_entropy,
    crossing_time,
    gradient_flow,
    measure,
    predict,
    probabilities,
    singular_values,
    truncated,
)

__all__ = [
    "Flow",
    "KINDS",
    "Memory",
    "asymptotic_constant",
    "cross_entropy",
    "crossing_time",
    "gradient_flow",
    "measure",
    "predict",
    "probabilities",
    "singular_values",
    "truncated",
]
