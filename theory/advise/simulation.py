"""Measures random networks, to check the predictions of the advisor (--check, --width-check)."""

from typing import Any

import jax
import numpy as np

from jaxformer.stats import standard_error
from theory.advise.question import Question
from theory.signal.architecture import Architecture
from theory.signal.backward import backward
from theory.signal.measurement import measure
from theory.signal.recursion import forward

N_SEEDS = 3
WIDTH_FACTORS = (0.5, 1.0, 2.0, 4.0)
# A quantity drifts with the width if its largest value exceeds its smallest by a quarter.
DRIFT_RATIO = 1.25
TESTED_FOR_DRIFT = ("norm", "cosine", "keys", "gradient", "beta")


def check(question: Question, net: Architecture) -> dict[str, Any]:
    """Returns cosine, keys and gradient ratio of random networks, and the predicted cosine.

    Args:
      question: the input of the network.
      net: the network; with --solve the solved one.

    Returns:
      Means over `seeds` networks, the standard error of the cosine, and the cosine by layer.
    """
    layers, gradients = _measure(net, question.inputs)
    cosine = layers.cosine[:, -1]
    return {
        "seeds": N_SEEDS,
        "cosine": float(cosine.mean()),
        "cosine_error": float(standard_error(cosine)),
        "cosine_by_layer": layers.cosine.mean(0).tolist(),
        "predicted_cosine": float(forward(net, *question.inputs).cosine[-1]),
        "keys": _fewest_keys(layers.entropy),
        "gradient_ratio": gradients.ratio,
    }


def check_widths(question: Question) -> dict[str, Any]:
    """Returns predictions and measurements at several widths with the same standard deviations.

    This is muP's coordinate check.

    Returns:
      "rows", one dict with "width", "predicted" and "measured" per width, and "drifts", the names
      of the predicted quantities that change with the width.
    """
    rows = []
    for factor in WIDTH_FACTORS:
        net = wider(question.architecture, factor)
        predicted = _means(forward(net, *question.inputs), backward(net, *question.inputs).ratio)
        layers, gradients = _measure(net, question.inputs)
        rows.append(
            {
                "width": net.width,
                "predicted": predicted | {"beta": net.beta(question.length)},
                "measured": _means(layers, gradients.ratio),
            }
        )
    drifts = [
        name
        for name in TESTED_FOR_DRIFT
        if _largest_over_smallest([row["predicted"][name] for row in rows]) > DRIFT_RATIO
    ]
    return {"rows": rows, "drifts": drifts}


def wider(net: Architecture, factor: float) -> Architecture:
    """Returns a network with `factor` times the width.

    The number of heads and the standard deviations of the weights stay the same.
    """
    head_width = max(2, 2 * round(net.head_width * factor / 2))
    width = max(2, round(net.width * factor))
    if not net.has_output_projection:  # then the heads must fill the width
        width = net.heads * head_width
    return net.replace(
        width=width,
        head_width=head_width,
        mlp_width=max(1, round(net.mlp_width * factor)),
        # The scale stays proportional to 1 / sqrt(head width).
        score_scale=net.score_scale * (head_width / net.head_width) ** (-0.5),
    )


def _measure(net: Architecture, inputs: tuple[int, float | None, float]):
    with jax.enable_x64(True):
        return measure(jax.vmap(jax.random.key)(np.arange(N_SEEDS)), net, *inputs)


def _means(layers, gradient_ratio: float) -> dict[str, float]:
    return {
        "norm": float(np.mean(layers.norm[..., -1])),
        "cosine": float(np.mean(layers.cosine[..., -1])),
        "keys": _fewest_keys(layers.entropy),
        "gradient": gradient_ratio,
    }


def _fewest_keys(entropy: np.ndarray) -> float:
    """Returns the number of keys, e^entropy, of the layer with the smallest mean entropy."""
    by_layer = entropy.reshape(-1, entropy.shape[-1]).mean(0)
    return float(np.exp(by_layer.min()))


def _largest_over_smallest(values: list[float]) -> float:
    """Returns the ratio: inf if only the smallest is not positive, 1 if no value is positive."""
    low, high = min(values), max(values)
    if low > 0:
        return high / low
    if low <= 0 < high:
        return float("inf")
    return 1.0
