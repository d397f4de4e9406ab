"""The answer as a picture."""

from pathlib import Path
from typing import Any

import numpy as np

from theory.command import BLUE, ORANGE, RED, new_figure, save_figure


def draw(answer: dict[str, Any], path: Path, quiet: bool) -> None:
    figure, (left, right) = new_figure(2, 10, 4.2)
    layers = np.arange(answer["layers"] + 1)
    left.plot(layers, answer["cosine"], color=BLUE, lw=2, label=r"cosine of two tokens, $\rho$")
    look = {"color": ORANGE, "lw": 2, "ls": "-.", "label": r"attention entropy / $\ln T$"}
    left.plot(layers[1:], answer["entropy_fraction"], **look)
    left.axhline(1 - answer["epsilon"], color=RED, ls="--", label=r"collapse, $1-\epsilon$")
    if checked := answer.get("checked"):
        label = "measured, 3 networks" + (" (solved)" if answer.get("solved") else "")
        measured = checked["cosine_by_layer"]
        left.plot(np.arange(len(measured)), measured, "o", color=BLUE, ms=3, label=label)
    left.set(xlabel="layer", ylabel="cosine, fraction of entropy", ylim=(0, 1.03))
    left.set_title(f"{answer['regime'].capitalize()}: {answer['judged']}", fontsize=8)
    left.legend(loc="center right")
    right.semilogy(layers, answer["gradient"], color=BLUE, lw=2)
    right.set(xlabel="layer", ylabel="gradient, last layer = 1")
    right.set_title(f"first block / last block {answer['gradient_ratio']:.3g}", fontsize=8)
    save_figure(figure, path, quiet=quiet)
