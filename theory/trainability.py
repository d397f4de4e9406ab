"""Draws the cosine of two tokens after L layers over (beta, alpha_SA), with two boundaries.

    jaxformer trainability --layers 60 --length 128 --out trainability.png

beta is the scale of the scores, alpha_SA the residual weight of attention. Networks below
alpha_c(beta) are in rank collapse. Networks right of beta_c(0) = sqrt(2), the transition of
orthogonal tokens, are in entropy collapse. The others can train. The default variances are taken
from arXiv 2505.24333, figure 1c.
The command writes a png, pdf or svg, and an npz file with the numbers.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.report import figure_style
from jaxformer.runtime.command_line import Parser, command
from theory.checks import check_count, check_range
from theory.command_output import (
    COLUMN,
    MAX_POINTS,
    MAX_TOKENS,
    RED,
    SKY,
    check_figure_and_arrays,
    new_figure,
    save_figure,
)
from theory.signal.encoder_block import OVERLAPS, Block
from theory.signal.phase_diagram import GridOverlaps, critical_alpha, final_cosine

BETA_C = 2**0.5  # where entropy collapse begins for orthogonal tokens


@command
def main(argv: Sequence[str]) -> int:
    args = _parse(argv)
    beta = np.linspace(0, args.beta_max, args.points)
    alpha = np.linspace(0, args.alpha_max, args.points)
    sigmas = args.sigma_v2, args.sigma_w2, args.sigma_b2
    block = Block(beta[:, None], alpha[None], args.alpha_mlp, *sigmas, args.activation)
    overlaps = GridOverlaps(args.length, args.overlaps)
    cosine = final_cosine(block, args.layers, overlaps)
    alpha_c = critical_alpha(block.replace(beta=beta), args.layers, args.epsilon, overlaps)
    arrays = {"beta": beta, "alpha": alpha, "cosine": cosine, "critical_alpha": alpha_c}
    save_figure(_figure(args, cosine, alpha_c), args.out, arrays)
    return 0


def _parse(argv: Sequence[str]) -> Any:
    parser = Parser(prog="jaxformer trainability", description=__doc__)
    add = parser.add_argument
    add("--layers", type=int, default=60, help="depth L (60)")
    add("--length", type=int, default=128, help="tokens T (128)")
    overlaps_help = "exact: at T tokens; limit: of many tokens; heuristic: the paper's"
    add("--overlaps", choices=OVERLAPS, default="exact", help=overlaps_help)
    add("--epsilon", type=float, default=0.01, help="collapse is a cosine above 1 - epsilon")
    add("--beta-max", type=float, default=2.5, help="largest beta (2.5)")
    add("--alpha-max", type=float, default=3.0, help="largest alpha_SA (3)")
    add("--alpha-mlp", type=float, default=1.0, help="residual weight of the MLP (1)")
    add(
        "--sigma-v2",
        type=float,
        default=0.2,
        help="variance of the value weights times their fan-in",
    )
    add(
        "--sigma-w2", type=float, default=0.2, help="variance of the MLP weights times their fan-in"
    )
    add("--sigma-b2", type=float, default=4e-4, help="MLP bias variance")
    add("--activation", default="relu", help="activation of the MLP (relu)")
    add("--points", type=int, default=200, help="grid points per axis (200)")
    add("--out", type=Path, default=Path("trainability.png"), help="png, pdf or svg")
    add("--force", action="store_true", help="overwrite existing files")
    args = parser.parse_args(argv)
    check_count("--points", args.points, 2, MAX_POINTS)
    check_count("--length", args.length, 2, MAX_TOKENS)
    check_count("--layers", args.layers, 1, 10_000)
    if not 0 < args.epsilon < 1:
        raise UserError(f"--epsilon must be between 0 and 1, got {args.epsilon}.")
    for name in ("alpha_mlp", "sigma_v2", "sigma_w2", "sigma_b2"):
        check_range(f"--{name.replace('_', '-')}", getattr(args, name), 0, 1e6)
    check_range("--beta-max", args.beta_max, 0.1, 20)
    check_range("--alpha-max", args.alpha_max, 0.01, 1000)
    check_figure_and_arrays(args.out, args.force)
    return args


def _figure(args: Any, cosine_BxA: np.ndarray, alpha_c_B: np.ndarray) -> Any:
    figure, (axis,) = new_figure(1, (COLUMN, 2.5))
    look = {"cmap": f"{figure_style.SEQUENTIAL_MAP}_r", "vmin": -4, "vmax": 0}
    log_distance = np.log10(np.maximum(1 - cosine_BxA, 1e-6))
    extent = (0, args.beta_max, 0, args.alpha_max)
    image = axis.imshow(log_distance.T, extent=extent, origin="lower", aspect="auto", **look)
    label = rf"$\alpha_c$: $\rho_L = {1 - args.epsilon:g}$"
    axis.plot(np.linspace(0, args.beta_max, args.points), alpha_c_B, color=RED, lw=1.8, label=label)
    axis.axvline(BETA_C, color=SKY, lw=1.6, ls="--", label=r"$\beta_c(0)=$√2")
    axis.set(xlim=(0, args.beta_max), ylim=(0, args.alpha_max))
    axis.set(xlabel=r"score scale $\beta$", ylabel=r"residual of attention, $\alpha_{SA}$")
    _name_regions(axis, args.beta_max, args.alpha_max, alpha_c_B[0])
    bar_label = r"distance to collapse, $\log_{10}(1-\rho_L)$"
    figure_style.add_colour_bar(figure, image, axis, bar_label, extend="min")
    note = f"{args.layers} layers at initialisation, {args.overlaps} theory, $T={args.length}$."
    figure_style.add_finding(figure, _headline(alpha_c_B[0]), note, axis)
    return figure


def _name_regions(axis: Any, beta_max: float, alpha_max: float, alpha_c: float) -> None:
    """Writes the names of the three regions where they are large enough for them."""
    look = {"ha": "center", "va": "center", "fontsize": figure_style.SMALL}
    look["bbox"] = {"boxstyle": "round", "facecolor": "white", "alpha": 0.85, "edgecolor": "none"}
    beta = BETA_C / 2 if beta_max > BETA_C else beta_max / 2
    boundary = float(np.clip(alpha_c, 0, alpha_max))
    if boundary > 0.1 * alpha_max:
        axis.text(beta, boundary / 2, "rank collapse", **look)
    if boundary < 0.8 * alpha_max:
        axis.text(beta, (boundary + alpha_max) / 2, "trainable", **look)
    if beta_max > 1.2 * BETA_C:
        axis.text((BETA_C + beta_max) / 2, 0.65 * alpha_max, "entropy\ncollapse", **look)


def _headline(alpha_c: float) -> str:
    if alpha_c == 0:
        return "At low $\\beta$ no residual is needed"
    if not np.isfinite(alpha_c):
        return "At low $\\beta$ no attention residual prevents rank collapse"
    return f"At low $\\beta$ tokens stay apart only above $\\alpha_{{SA}}={alpha_c:.2f}$"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
