"""A figure of the recipe `solve`: what measures it, what draws it, and what passes between."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.training.metrics import Mean


@dataclass
class Outcome:
    """The arrays that a figure shows, and the numbers that it claims."""

    arrays: dict[str, Any]
    metrics: dict[str, Mean]
    baselines: dict[str, float] = field(default_factory=dict)
    chains: dict[str, Any] = field(default_factory=dict)  # name -> diagnostics of what was sampled
    alarms: list[str] = field(default_factory=list)  # what went wrong without an error


class Figure(NamedTuple):
    """`measure(..)` computes an Outcome; `draw(arrays, ..)` shows its arrays and computes nothing.

    Both take the settings they name: fields of config.figure, `seed` and `n_seeds`.
    """

    measure: Callable[..., Outcome]
    draw: Callable[..., Any]


def settings_of(function: Callable) -> list[str]:
    """The names of the settings that a function takes."""
    names = []
    for name, parameter in inspect.signature(function).parameters.items():
        names += getattr(parameter.annotation, "_fields", [name])
    return names


def call(function: Callable, settings: Mapping[str, Any]) -> Any:
    """The function with its settings; an argument that is a NamedTuple takes its own fields."""
    arguments = {}
    for name, parameter in inspect.signature(function).parameters.items():
        kind = parameter.annotation
        if fields := getattr(kind, "_fields", ()):
            arguments[name] = kind(**{key: settings[key] for key in fields if key in settings})
        else:
            arguments[name] = settings[name]
    return function(**arguments)


class Training(NamedTuple):
    """How a figure trains its networks: every seed at every learning rate."""

    learning_rates: Sequence[float]
    batch_size: int
    steps: int
    seed: int
    n_seeds: int

    def arguments(self) -> dict[str, Any]:
        """As `fitted` names them."""
        return dict(zip(("rates", "batch_size", "steps", "seed", "n_seeds"), self))

    def best(self, losses_RxSxT: np.ndarray, who: str) -> tuple[int, np.ndarray]:
        """The learning rate with the lowest final loss, and that loss by seed.

        A final loss is the mean of ten steps. A rate at which one seed diverges is out.
        """
        last_RxS = losses_RxSxT[..., -10:].mean(-1)
        means_R = last_RxS.mean(-1)
        if np.isnan(means_R).all():
            raise UserError(
                f"{who} diverges at every learning rate of {[*self.learning_rates]}. "
                "Try lower --config.figure.learning_rates."
            )
        chosen = int(np.nanargmin(means_R))
        return chosen, last_RxS[chosen]


def exact(value: float) -> Mean:
    """A number without an error: a theory's."""
    return Mean(float(value), float("nan"), 1)
