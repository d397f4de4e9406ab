"""Draws SA(rho), the cosine of two tokens after one attention layer, over (beta, rho).

    jaxformer phase-map --length 512 --out phase_map.png

The left panel is the limit T -> infinity of arXiv 2505.24333, the right panel the exact average at
T tokens. The curve is beta_c(rho) = sqrt(2 / (1-rho)). The command writes a png, pdf or svg, and an
npz file with the numbers.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.report import figure_style
from jaxformer.runtime.command_line import Parser, command
from theory import rem
from theory.checks import check_count, check_range
from theory.command_output import (
    MAX_POINTS,
    MAX_TOKENS,
    PAGE,
    RED,
    check_figure_and_arrays,
    new_figure,
    save_figure,
)
from theory.signal.encoder_block import attention_average, ratio
from theory.signal.phase_diagram import GridOverlaps


def attention_cosine(beta: Any, rho: Any, T: float | None = None) -> np.ndarray:
    """Returns the cosine of two tokens after attention, by the overlaps of `theory.rem`.

    Args:
      beta: score scale; scores have variance beta^2 ln T.
      rho: cosine of two tokens before attention, in [0, 1].
      T: number of tokens; None is the limit T -> infinity.

    Returns:
      SA(rho) in the broadcast shape of beta and rho.
    """
    y_q, y_p = rem.self_overlap(beta, rho, T), rem.cross_overlap(beta, rho, T)
    return cosine_from_overlaps(rho, y_q, y_p)


def cosine_from_overlaps(rho: Any, y_q: Any, y_p: Any) -> np.ndarray:
    """Returns SA(rho) = [rho + Y_p (1-rho)] / [rho + Y_q (1-rho)] (eq. 14); 0/0 is 1."""
    return ratio(attention_average(y_p, 1, rho), attention_average(y_q, 1, rho))


@command
def main(argv: Sequence[str]) -> int:
    parser = Parser(prog="jaxformer phase-map", description=__doc__)
    parser.add_argument("--length", type=int, default=512, help="tokens T (512)")
    parser.add_argument("--beta-max", type=float, default=4.0, help="largest beta (4)")
    parser.add_argument("--points", type=int, default=200, help="grid points per axis (200)")
    parser.add_argument("--out", type=Path, default=Path("phase_map.png"), help="png, pdf or svg")
    parser.add_argument("--force", action="store_true", help="overwrite existing files")
    args = parser.parse_args(argv)
    check_count("--length", args.length, 2, MAX_TOKENS)
    check_range("--beta-max", args.beta_max, 0.1, 20)
    check_count("--points", args.points, 2, MAX_POINTS)
    check_figure_and_arrays(args.out, args.force)

    beta, rho = np.linspace(0, args.beta_max, args.points), np.linspace(0, 1, args.points)
    # NumPy overlaps: importing jax would take longer than both maps.
    cosines: dict[str, np.ndarray] = {}
    for kind in ("limit", "exact"):
        y_q, y_p = GridOverlaps(args.length, kind)(beta[:, None], rho[None])
        cosines[kind] = cosine_from_overlaps(rho[None], y_q, y_p)
    figure = _figure(args.length, beta, cosines["limit"], cosines["exact"])
    save_figure(figure, args.out, {"beta": beta, "rho": rho, **cosines})
    return 0


def _figure(length: int, beta_B: np.ndarray, limit_BxR: np.ndarray, exact_BxR: np.ndarray) -> Any:
    figure, axes = new_figure(2, (PAGE, 2.3), sharey=True)
    rho = np.linspace(0, 1, 400)[:-1]
    image_style = {
        "origin": "lower",
        "aspect": "auto",
        "cmap": figure_style.SEQUENTIAL_MAP,
        "vmin": 0,
        "vmax": 1,
    }
    titles = ("the paper's limit, $T\\to\\infty$", f"exact, $T={length}$")
    for axis, values, title in zip(axes, (limit_BxR, exact_BxR), titles):
        image = axis.imshow(values.T, extent=(0, beta_B[-1], 0, 1), **image_style)
        axis.plot(np.sqrt(2 / (1 - rho)), rho, color=RED, lw=1.6, label=r"$\beta_c(\rho)$")
        axis.set(xlim=(0, beta_B[-1]), ylim=(0, 1), xlabel=r"score scale $\beta$")
        axis.set_title(title)
    axes[0].set_ylabel(r"cosine before attention, $\rho$")
    figure_style.add_colour_bar(figure, image, axes, r"cosine after attention, $SA(\rho)$")
    figure_style.add_finding(
        figure,
        _headline(length, beta_B, exact_BxR),
        "Random weights, wide layer; $\\rho$ is the cosine of every two tokens.",
        axes[0],
    )
    return figure


def _headline(length: int, beta_B: np.ndarray, exact_BxR: np.ndarray) -> str:
    # The number belongs to beta = 1, or to the middle of a map that ends below 2.
    i = np.searchsorted(beta_B, min(1.0, beta_B[-1] / 2))
    return (
        "One attention layer: below $\\beta_c$ the limit makes all tokens equal; "
        f"{length} orthogonal tokens at $\\beta={beta_B[i]:.2g}$ only reach cosine "
        f"{exact_BxR[i, 0]:.2g}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
