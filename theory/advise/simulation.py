"""The network itself: built, measured, and held beside the prediction; needs jax."""

from typing import Any

import jax
import numpy as np

from theory.advise.question import Question
from theory.signal.architecture import Architecture
from theory.signal.backward import backward
from theory.signal.measurement import measure
from theory.signal.recursion import forward

SEEDS = 3
WIDTHS = (0.5, 1.0, 2.0, 4.0)
# What must not move with the width, and from where on it does: a quarter of itself.
DRIFTS = 1.25


def measured(question: Question, net: Architecture) -> dict[str, Any]:
    """The three numbers of SEEDS networks."""
    at = question.length, question.rho0, question.repeat
    layers, gradients = _measured(net, at)
    cosine = layers.cosine[:, -1]
    return {
        "seeds": SEEDS,
        "cosine": float(cosine.mean()),
        "cosine_error": float(cosine.std(ddof=1) / SEEDS**0.5),
        "cosine_by_layer": layers.cosine.mean(0).tolist(),
        "predicted_cosine": float(forward(net, *at).cosine[-1]),
        "keys": float(np.exp(layers.entropy.mean(0).min())),
        "gradient_ratio": gradients.ratio,
    }


def widths(question: Question) -> dict[str, Any]:
    """Predicted and measured at several widths, deviations as they are: muP's coordinate check."""
    at, rows = (question.length, question.rho0, question.repeat), []
    for factor in WIDTHS:
        net = wider(question.architecture, factor)
        layers, gradient = forward(net, *at), backward(net, *at)
        seen, back = _measured(net, at)
        rows.append(
            {
                "width": net.width,
                "predicted": _numbers(layers, gradient.ratio, net, question.length),
                "measured": _numbers(seen, back.ratio, None, question.length),
            }
        )
    names = ("norm", "cosine", "keys", "gradient", "beta")
    drift = [
        name
        for name in names
        if (values := [row["predicted"][name] for row in rows]) and _ratio(values) > DRIFTS
    ]
    lines = [f"width {row['width']:<12}{_row(row)}" for row in rows]
    said = f"{', '.join(drift)} drift with the width" if drift else "nothing drifts with the width"
    return {"rows": rows, "drifts": drift, "lines": [*lines, f"width             {said}"]}


def wider(net: Architecture, factor: float) -> Architecture:
    """The same heads and deviations at another width."""
    head_width = max(2, 2 * round(net.head_width * factor / 2))
    scale = (head_width / net.head_width) ** (-0.5)
    return net.replace(
        width=net.heads * head_width if net.std_o is None else max(2, round(net.width * factor)),
        head_width=head_width,
        mlp_width=max(1, round(net.mlp_width * factor)),
        score_scale=net.score_scale * scale,
    )


def _measured(net: Architecture, at: tuple[int, float | None, float]):
    """(layers, gradients) of SEEDS networks, in float64."""
    with jax.enable_x64(True):
        return measure(jax.vmap(jax.random.key)(np.arange(SEEDS)), net, *at)


def _numbers(layers, ratio: float, net: Architecture | None, length: int) -> dict[str, float]:
    last = {
        "norm": float(np.mean(layers.norm[..., -1])),
        "cosine": float(np.mean(layers.cosine[..., -1])),
        "keys": float(np.exp(layers.entropy.reshape(-1, layers.entropy.shape[-1]).mean(0).min())),
        "gradient": ratio,
    }
    return last | ({"beta": net.beta(length)} if net else {})


def _ratio(values: list[float]) -> float:
    low, high = min(values), max(values)
    return float("inf") if low <= 0 < high else high / low if low > 0 else 1.0


def _row(row: dict[str, Any]) -> str:
    found = row["measured"]
    return ", ".join(
        f"{name} {value:.3g}" + (f" ({found[name]:.3g} measured)" if name in found else "")
        for name, value in row["predicted"].items()
    )
