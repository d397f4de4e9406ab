"""Results of a computed figure: its arrays, and the numbers of its record.

Configs with `recipe = "solve"` compute a figure instead of training a network.
A figure has two functions. `measure_x` computes an `Outcome`, `draw_x` draws its arrays.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.training.metrics import Mean, over_seeds

FINAL_STEPS = 10  # the final loss is the mean over these last steps


@dataclass
class Outcome:
    """The arrays that a figure shows, with the metrics and baselines of its record.

    `scalar` and `curve` add a measured array and its predictions, `grid` adds metrics. S is the
    axis of seeds (or data sets). Metrics are means over it with their standard errors.
    """

    arrays: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Mean] = field(default_factory=dict)
    baselines: dict[str, float] = field(default_factory=dict)
    chains: dict[str, Any] = field(default_factory=dict)  # diagnostics of sampled chains, by name
    alarms: list[str] = field(default_factory=list)  # warnings of runs that ended without an error

    def scalar(self, name: str, values_S, **predictions: float) -> None:
        """Adds a number that was measured once per seed, as an array and as a metric.

        Each prediction becomes an array and a baseline called "PREDICTION_NAME".

            outcome.scalar("radius_beta_2", radius_S, theory=0.31)  # baseline theory_radius_beta_2
        """
        self.metrics[name], self.arrays[name] = over_seeds(values_S), values_S
        for prediction, value in predictions.items():
            key = f"{prediction}_{name}"
            self.baselines[key] = self.arrays[key] = float(value)

    def curve(self, name: str, measured_SxK, **predictions_K) -> None:
        """Adds a measured curve and predicted ones as arrays.

            outcome.curve("{}_beta_2", cosine_SxL, exact=line_L)  # measured_beta_2, exact_beta_2

        Args:
          name: A format with one field, for "measured" and for the name of each prediction.
          measured_SxK: K points of the curve for each seed.
          **predictions_K: Predictions at the same points.
        """
        self.arrays[name.format("measured")] = measured_SxK
        for prediction, line_K in predictions_K.items():
            self.arrays[name.format(prediction)] = line_K

    def grid(self, name: str, values: np.ndarray, *labels: Iterable[Any]) -> None:
        """Adds a metric for each cell of an array: the mean over its last axis, the seeds.

            outcome.grid("accuracy/{}/noise={:g}", accuracy_DxNxS, designs, noises)

        Args:
          name: A format with one field for each axis of `labels`.
          values: The measured array, (..., S).
          *labels: The labels of each axis before the last.
        """
        axes = [list(axis) for axis in labels]
        for cell in np.ndindex(values.shape[:-1]):
            label = name.format(*(axis[i] for axis, i in zip(axes, cell, strict=True)))
            self.metrics[label] = over_seeds(values[cell])


class Figure(NamedTuple):
    """The functions of a figure: `measure` returns an Outcome, `draw` draws its arrays.

    `draw` takes the arrays first. All other arguments are settings: fields of config.figure, `seed`
    and `n_seeds`. `check` raises UserError for settings that cannot be measured, before anything
    runs.
    """

    measure: Callable[..., Outcome]
    draw: Callable[..., Any]
    check: Callable[..., Any] | None = None


def settings_of(function: Callable) -> list[str]:
    """Returns the names of the settings that a function takes."""
    names = []
    for name, parameter in inspect.signature(function).parameters.items():
        names += getattr(parameter.annotation, "_fields", [name])
    return names


def call(function: Callable, settings: Mapping[str, Any]) -> Any:
    """Calls a function with its settings. The fields of a NamedTuple argument are settings too."""
    arguments = {}
    for name, parameter in inspect.signature(function).parameters.items():
        kind = parameter.annotation
        if fields := getattr(kind, "_fields", ()):
            arguments[name] = kind(**{key: settings[key] for key in fields if key in settings})
        else:
            arguments[name] = settings[name]
    return function(**arguments)


class Training(NamedTuple):
    """The training of a figure's networks: every seed at every learning rate."""

    learning_rates: Sequence[float]
    batch_size: int
    steps: int
    seed: int
    n_seeds: int

    def arguments(self) -> dict[str, Any]:
        """Returns the fields as keyword arguments of `fitting.fitted`."""
        return dict(zip(("rates", "batch_size", "steps", "seed", "n_seeds"), self))

    def best(self, losses_RxSxT: np.ndarray, network: str) -> tuple[int, np.ndarray]:
        """Chooses the learning rate with the lowest final loss, averaged over seeds.

        A learning rate at which any seed diverges (nan) is not chosen.

        Args:
          losses_RxSxT: Training losses by learning rate, seed and step.
          network: The name of the network in the error message.

        Returns:
          The index of the learning rate, and the final loss of each seed, (S,).
        """
        final_RxS = losses_RxSxT[..., -FINAL_STEPS:].mean(-1)
        means_R = final_RxS.mean(-1)
        if np.isnan(means_R).all():
            raise UserError(
                f"{network} diverges at every learning rate of {[*self.learning_rates]}. "
                "Try lower --config.figure.learning_rates."
            )
        chosen = int(np.nanargmin(means_R))
        return chosen, final_RxS[chosen]


def jackknife(statistic: Callable[[np.ndarray], float], values_SxK: np.ndarray) -> Mean:
    """Returns a statistic of the mean over networks with its jackknife standard error.

        jackknife(root_mean_square, cosine_SxK - theory_K)

    Args:
      statistic: A function of K means, such as `root_mean_square`.
      values_SxK: K values of S networks, such as their distances from a theory.
    """
    networks = len(values_SxK)
    value = float(statistic(values_SxK.mean(0)))
    if networks == 1:
        return Mean(value, float("nan"), 1)
    without_S = [statistic(np.delete(values_SxK, s, 0).mean(0)) for s in range(networks)]
    return Mean(value, float(np.std(without_S)) * (networks - 1) ** 0.5, networks)


def root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def largest(values: np.ndarray) -> float:
    """Returns the largest absolute value."""
    return float(np.abs(values).max())


def exact(value: float) -> Mean:
    """Returns a computed number as a metric without a standard error."""
    return Mean(float(value), float("nan"), 1)
