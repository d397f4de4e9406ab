"""The answer as a picture."""

from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.runtime import figure_style
from theory.command_output import BLUE, ORANGE, PAGE, RED, new_figure, save_figure


def draw(answer: dict[str, Any], path: Path, quiet: bool) -> None:
    figure, (left, right) = new_figure(2, (PAGE, 2.0))
    layers = np.arange(answer["layers"] + 1)
    left.plot(layers, answer["cosine"], color=BLUE, lw=1.6, label=r"cosine of two tokens, $\rho$")
    look = {"color": ORANGE, "lw": 3.5, "alpha": 0.7, "label": r"attention entropy / $\ln T$"}
    left.plot(layers[1:], answer["entropy_fraction"], **look)
    left.axhline(1 - answer["epsilon"], color=RED, lw=0.9, ls="--", label=r"collapse, $1-\epsilon$")
    if checked := answer.get("checked"):
        label = f"measured, {checked['seeds']} networks" + (
            " (solved)" if answer.get("solved") else ""
        )
        measured = checked["cosine_by_layer"]
        left.plot(np.arange(len(measured)), measured, "o", color=BLUE, ms=3, label=label)
    left.set(xlabel="layer", ylabel="cosine, share of entropy", ylim=(0, 1.04))
    figure_style.name(left, columns=2)
    right.semilogy(layers, answer["gradient"], color=BLUE, lw=1.6)
    right.set(xlabel="layer", ylabel="gradient, last layer = 1")
    figure_style.name(right, f"first block / last block {answer['gradient_ratio']:.3g}")
    figure_style.headed(
        figure, answer["regime"].capitalize(), f"At initialisation: {answer['judged']}."
    )
    save_figure(figure, path, quiet=quiet)
