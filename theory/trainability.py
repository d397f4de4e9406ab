"""Draws the cosine of two tokens after L layers over (beta, alpha_SA), and the two boundaries.

    python -m theory.trainability --layers 60 --length 128 --out trainability.png

Rank collapse below alpha_c(beta), entropy collapse right of beta_c(0) = sqrt(2), trainable between.
The default variances are the paper's (figure 1c). Writes a figure and an npz of its numbers.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.runtime import figure_style
from jaxformer.runtime.command_line import Parser, command
from theory.checks import check_count, check_range
from theory.command_output import (
    COLUMN,
    ENDINGS,
    MOST_POINTS,
    MOST_TOKENS,
    RED,
    SKY,
    check_writable,
    new_figure,
    save_figure,
)
from theory.signal.phase_diagram import OVERLAPS, Encoders, Overlaps


@command
def main(argv: Sequence[str]) -> int:
    parser = Parser(prog="python -m theory.trainability", description=__doc__)
    parser.add_argument("--layers", type=int, default=60, help="depth L (60)")
    parser.add_argument("--length", type=int, default=128, help="tokens T (128)")
    parser.add_argument(
        "--overlaps",
        choices=OVERLAPS,
        default="exact",
        help="exact at T tokens, the limit, the paper's heuristic",
    )
    parser.add_argument("--epsilon", type=float, default=0.01, help="collapse: rho > 1 - epsilon")
    parser.add_argument("--beta-max", type=float, default=2.5, help="largest beta (2.5)")
    parser.add_argument("--alpha-max", type=float, default=3.0, help="largest alpha_SA (3)")
    parser.add_argument("--alpha-mlp", type=float, default=1.0, help="residual of the MLP (1)")
    parser.add_argument("--sigma-v2", type=float, default=0.2, help="value variance x fan-in")
    parser.add_argument("--sigma-w2", type=float, default=0.2, help="MLP variance x fan-in")
    parser.add_argument("--sigma-b2", type=float, default=4e-4, help="MLP bias variance")
    parser.add_argument("--activation", default="relu", help="of the MLP (relu)")
    parser.add_argument("--points", type=int, default=200, help="grid points a side (200)")
    parser.add_argument(
        "--out", type=Path, default=Path("trainability.png"), help="png, pdf or svg"
    )
    parser.add_argument("--force", action="store_true", help="overwrite")
    args = parser.parse_args(argv)
    check_count("--points", args.points, 2, MOST_POINTS)
    check_count("--length", args.length, 2, MOST_TOKENS)
    check_count("--layers", args.layers, 1, 10_000)
    if not 0 < args.epsilon < 1:
        raise UserError(f"--epsilon must be between 0 and 1, got {args.epsilon}.")
    for name in ("alpha_mlp", "sigma_v2", "sigma_w2", "sigma_b2"):
        check_range(f"--{name.replace('_', '-')}", getattr(args, name), 0, 1e6)
    check_range("--beta-max", args.beta_max, 0.1, 20)
    check_range("--alpha-max", args.alpha_max, 0.01, 1000)
    check_writable(args.out, ENDINGS, args.force)
    check_writable(args.out.with_suffix(".npz"), (".npz",), args.force)

    beta = np.linspace(0, args.beta_max, args.points)
    alpha = np.linspace(0, args.alpha_max, args.points)
    sigmas = args.sigma_v2, args.sigma_w2, args.sigma_b2
    overlaps = Overlaps(args.length, args.overlaps)
    encoders = Encoders(overlaps, args.alpha_mlp, *sigmas, args.activation)
    cosine = encoders.cosine(beta[:, None], alpha[None], args.layers)
    edge = encoders.critical_alpha(beta, args.layers, args.epsilon)
    figure, (axis,) = new_figure(1, (COLUMN, 2.5))
    look = {
        "origin": "lower",
        "aspect": "auto",
        "cmap": f"{figure_style.AMOUNT}_r",
        "vmin": -4,
        "vmax": 0,
    }
    apart = np.log10(np.maximum(1 - cosine, 1e-6))
    image = axis.imshow(apart.T, extent=(0, args.beta_max, 0, args.alpha_max), **look)
    axis.plot(beta, edge, color=RED, lw=1.8, label=rf"$\alpha_c$: $\rho_L = {1 - args.epsilon:g}$")
    axis.axvline(2**0.5, color=SKY, lw=1.6, ls="--", label=r"$\beta_c(0)=$√2")
    axis.set(xlim=(0, args.beta_max), ylim=(0, args.alpha_max))
    axis.set(xlabel=r"score scale $\beta$", ylabel=r"residual of attention, $\alpha_{SA}$")
    label = {"ha": "center", "va": "center", "fontsize": figure_style.SMALL}
    label["bbox"] = {"boxstyle": "round", "facecolor": "white", "alpha": 0.85, "edgecolor": "none"}
    middle = 2**0.5 / 2 if args.beta_max > 2**0.5 else args.beta_max / 2
    low = float(np.clip(edge[0], 0, args.alpha_max))
    if low > 0.1 * args.alpha_max:
        axis.text(middle, low / 2, "rank collapse", **label)
    if low < 0.8 * args.alpha_max:
        axis.text(middle, (low + args.alpha_max) / 2, "trainable", **label)
    if args.beta_max > 1.2 * 2**0.5:
        right = (2**0.5 + args.beta_max) / 2
        axis.text(right, 0.65 * args.alpha_max, "entropy\ncollapse", **label)
    words = r"distance to collapse, $\log_{10}(1-\rho_L)$"
    figure_style.bar(figure, image, axis, words, extend="min")
    beware = f"{args.layers} layers at initialisation, {args.overlaps} theory, $T={args.length}$."
    figure_style.headed(figure, _finding(edge[0]), beware, axis)
    arrays = {"beta": beta, "alpha": alpha, "cosine": cosine, "critical_alpha": edge}
    save_figure(figure, args.out, arrays)
    return 0


def _finding(edge: float) -> str:
    if edge == 0:
        return "At low $\\beta$ no residual is needed"
    if not np.isfinite(edge):
        return "At low $\\beta$ no attention residual prevents rank collapse"
    return f"At low $\\beta$ tokens stay apart only above $\\alpha_{{SA}}={edge:.2f}$"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
