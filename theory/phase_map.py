"""Draws SA(rho), the cosine of two tokens after one attention layer, over (beta, rho).

    python -m theory.phase_map --length 512 --out phase_map.png

Left the paper's limit T -> infinity, right the exact average at T tokens; the curve is
beta_c(rho) = sqrt(2 / (1-rho)). Writes a png, pdf or svg and an npz with the same numbers.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.runtime import figure_style
from jaxformer.runtime.command_line import Parser, command
from theory import rem
from theory.checks import check_count, check_range
from theory.command_output import (
    ENDINGS,
    MOST_POINTS,
    MOST_TOKENS,
    PAGE,
    RED,
    check_writable,
    new_figure,
    save_figure,
)
from theory.formulas import ratio
from theory.signal.phase_diagram import Overlaps


def attention_cosine(beta: Any, rho: Any, T: float | None = None) -> np.ndarray:
    """SA(rho) of T tokens, or in the limit; by theory.rem."""
    return cosine_after(rho, rem.self_overlap(beta, rho, T), rem.cross_overlap(beta, rho, T))


def cosine_after(rho: Any, y_q: Any, y_p: Any) -> np.ndarray:
    """SA(rho) = [(1-rho) Y_p + rho] / [(1-rho) Y_q + rho]; 1 where the limit is 0/0 (rho = 0)."""
    return ratio((1 - rho) * y_p + rho, (1 - rho) * y_q + rho)


@command
def main(argv: Sequence[str]) -> int:
    parser = Parser(prog="python -m theory.phase_map", description=__doc__)
    parser.add_argument("--length", type=int, default=512, help="tokens T (512)")
    parser.add_argument("--beta-max", type=float, default=4.0, help="largest beta (4)")
    parser.add_argument("--points", type=int, default=200, help="grid points a side (200)")
    parser.add_argument("--out", type=Path, default=Path("phase_map.png"), help="png, pdf or svg")
    parser.add_argument("--force", action="store_true", help="overwrite")
    args = parser.parse_args(argv)
    check_count("--length", args.length, 2, MOST_TOKENS)
    check_range("--beta-max", args.beta_max, 0.1, 20)
    check_count("--points", args.points, 2, MOST_POINTS)
    check_writable(args.out, ENDINGS, args.force)
    check_writable(args.out.with_suffix(".npz"), (".npz",), args.force)

    beta, rho = np.linspace(0, args.beta_max, args.points), np.linspace(0, 1, args.points)
    # Overlaps in numpy: the command needs no jax, whose start takes longer than both maps.
    limit, exact = (
        cosine_after(rho[None], *Overlaps(args.length, kind)(beta[:, None], rho[None]))
        for kind in ("limit", "exact")
    )
    figure, axes = new_figure(2, (PAGE, 2.3), sharey=True)
    edge = np.linspace(0, 1, 400)[:-1]
    critical = np.sqrt(2 / (1 - edge))
    look = {"origin": "lower", "aspect": "auto", "cmap": figure_style.AMOUNT, "vmin": 0, "vmax": 1}
    names = ("the paper's limit, $T\\to\\infty$", f"exact, $T={args.length}$")
    for axis, values, name in zip(axes, (limit, exact), names):
        image = axis.imshow(values.T, extent=(0, args.beta_max, 0, 1), **look)
        axis.plot(critical, edge, color=RED, lw=1.6, label=r"$\beta_c(\rho)$")
        axis.set(xlim=(0, args.beta_max), ylim=(0, 1), xlabel=r"score scale $\beta$")
        axis.set_title(name)
    axes[0].set_ylabel(r"cosine before attention, $\rho$")
    figure_style.bar(figure, image, axes, r"cosine after attention, $SA(\rho)$")
    figure_style.headed(
        figure,
        _finding(args.length, beta, exact),
        "Random weights, wide layer; $\\rho$ is the cosine of every two tokens.",
        axes[0],
    )
    save_figure(figure, args.out, {"beta": beta, "rho": rho, "limit": limit, "exact": exact})
    return 0


def _finding(length: int, beta_B: np.ndarray, exact_BxR: np.ndarray) -> str:
    """At beta = 1, or in the middle of a map that ends below 2."""
    at = np.searchsorted(beta_B, min(1.0, beta_B[-1] / 2))
    return (
        "One attention layer: below $\\beta_c$ the limit makes all tokens equal; "
        f"{length} orthogonal tokens at $\\beta={beta_B[at]:.2g}$ only reach cosine "
        f"{exact_BxR[at, 0]:.2g}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
