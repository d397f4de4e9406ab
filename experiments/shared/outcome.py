"""What a figure function returns to the recipe `solve`."""

from dataclasses import dataclass, field
from typing import Any

from jaxformer.training.metrics import Mean


@dataclass
class Outcome:
    """A matplotlib figure, the arrays it shows, and the numbers that it claims."""

    figure: Any
    arrays: dict[str, Any]
    metrics: dict[str, Mean]
    baselines: dict[str, float] = field(default_factory=dict)
    members: list[dict[str, Any]] = field(default_factory=list)


def exact(value: float) -> Mean:
    """A number without an error: a theory's."""
    return Mean(float(value), float("nan"), 1)
