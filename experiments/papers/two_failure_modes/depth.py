"""Cosine of tokens through many blocks (arXiv 2505.24333): Figures 1d, e, 5 and C.3.

Lines are theory (theory.signal): `exact` for T tokens, `limit` for many tokens as in the paper.
Dots are random encoders with random directions as input. Error bars are standard deviations over
networks, as in the paper.
Scores have variance beta^2 ln T. alpha_SA and alpha_MLP are the residual weights of attention and
MLP. Axes: S networks, L layers.
"""

import jax.numpy as jnp
import numpy as np

from experiments.papers import plots
from experiments.papers.outcome import Figure, Outcome, exact, jackknife, largest, root_mean_square
from experiments.papers.plots import COLOURS
from experiments.papers.two_failure_modes.networks import Encoders, Strengths
from jaxformer.core.errors import check_choice
from jaxformer.training.metrics import over_seeds
from theory.signal import Block, block_map, fixed_points, propagate

DOT = {"fmt": "o", "ms": 3, "capsize": 2, "elinewidth": 0.8}
THEORIES = {"exact": "-", "limit": "--"}
MAP = {"origin": "lower", "aspect": "auto", "cmap": "cividis", "vmax": 1}


def measure_depth(panels: tuple, strengths: Strengths, encoders: Encoders) -> Outcome:
    """Measures Figure 1d, e: the cosine after each layer.

    `third_..` is the cosine after a third of the layers, where theories differ most.

    Args:
      panels: A tuple (layers, beta, values of alpha_SA) for each panel.
      strengths: The other parameters of a block.
      encoders: The random networks.
    """
    outcome, largest_errors = Outcome(), dict.fromkeys(THEORIES, 0.0)
    for layers, beta, alphas in panels:
        for alpha in alphas:
            block, name = strengths.block(beta, alpha), f"beta_{beta:g}_alpha_{alpha:g}"
            cosine_SxL = encoders.cosines(block, layers)
            third = layers // 3
            lines = _lines(block, layers, encoders.length)
            # {} becomes "measured", "exact" or "limit".
            outcome.curve(f"{{}}_{name}", cosine_SxL, **lines)
            for theory, line_L in lines.items():
                error = jackknife(largest, cosine_SxL - line_L)
                outcome.metrics[f"{theory}_largest_error_{name}"] = error
                largest_errors[theory] = max(largest_errors[theory], error.mean)
                outcome.baselines[f"{theory}_third_{name}"] = float(line_L[third])
            outcome.metrics |= {
                f"third_{name}": over_seeds(cosine_SxL[:, third]),
                f"cosine_{name}": over_seeds(cosine_SxL[:, -1]),
            }
    outcome.arrays["largest_errors"] = [*largest_errors.values()]
    return outcome


def _lines(block: Block, layers: int, length: int) -> dict[str, np.ndarray]:
    """Returns the cosine after each layer by theory, (L + 1,), for orthogonal inputs."""
    return {name: np.asarray(propagate(0.0, block, layers, length, name)) for name in THEORIES}


def draw_depth(arrays, panels: tuple, length: int, width: int):
    figure, axes = plots.row(len(panels), (plots.PAGE, 2.2), sharey=True)
    for axis, (layers, beta, alphas) in zip(axes, panels, strict=True):
        for colour, alpha in zip(COLOURS, alphas):
            name, label = f"beta_{beta:g}_alpha_{alpha:g}", rf"$\alpha_{{SA}}={alpha:g}$"
            for theory, dashes in THEORIES.items():
                axis.plot(arrays[f"{theory}_{name}"], color=colour, ls=dashes)
            measured_SxL = arrays[f"measured_{name}"]
            _dots(axis, measured_SxL, color=colour, label=label)
        axis.set(xlabel="layer", ylim=(-0.03, 1.03))
        ends = [arrays[f"measured_beta_{beta:g}_alpha_{a:g}"][:, -1].mean() for a in alphas]
        values = ", ".join(f"{end:.2f}" for end in ends)
        plots.label_panel(axis, rf"{layers} layers, $\beta={beta:g}$: they end at {values}")
    axes[0].set_ylabel(r"cosine of two tokens $\rho$")
    exact_error, limit_error = arrays["largest_errors"]
    plots.add_finding(
        figure,
        f"Networks lie within {exact_error:.3f} of the exact theory and within {limit_error:.3f} "
        "of the limit",
        f"Dots: {len(measured_SxL)} networks of $d={width}$ with standard deviations over them; "
        f"lines: exact theory at $T={length}$; dashed: the paper's limit.",
    )
    return figure


def check_tanh(values: str) -> None:
    """Raises unless the variance of the values is "equal" (to sigma_w^2) or "one"."""
    check_choice("variance of the values", values, ("equal", "one"))


def measure_tanh(
    sigma_ws: tuple,
    values: str,
    layers: int,
    beta: float,
    alpha_sa: float,
    alpha_mlp: float,
    sigma_b2: float,
    encoders: Encoders,
) -> Outcome:
    """Measures Figure 5: the cosine at which tanh keeps tokens apart at any depth.

    The measured value is the mean over the second half of the layers, because a single layer of a
    network fluctuates.

    Args:
      sigma_ws: Standard deviations of the MLP's weights.
      values: "equal" for sigma_V = sigma_w, "one" for sigma_V = 1.
      layers: The depth L.
      beta: The scale of the scores.
      alpha_sa: The residual weight of attention.
      alpha_mlp: The residual weight of the MLP.
      sigma_b2: The variance of the biases.
      encoders: The random networks.
    """
    rho, length = np.linspace(0, 1, 201), encoders.length
    outcome = Outcome({"rho": rho})
    for sigma_w in sigma_ws:
        name, sigma_v2 = f"sigma_w_{sigma_w:g}", sigma_w**2 if values == "equal" else 1.0
        block = Block(beta, alpha_sa, alpha_mlp, sigma_v2, sigma_w**2, sigma_b2, "tanh")
        roots, limit = fixed_points(block, length), fixed_points(block)
        fixed_point = float(roots.rho[roots.stable][0])
        cosine_SxL, line = encoders.cosines(block, layers), propagate(0.0, block, layers, length)
        outcome.curve(f"{{}}_{name}", cosine_SxL, theory=line)
        late_S = cosine_SxL[:, layers // 2 :].mean(1)  # the second half of the layers
        outcome.metrics[f"fixed_point_{name}"] = exact(fixed_point)
        outcome.metrics[f"measured_{name}"] = over_seeds(late_S)
        outcome.baselines[f"limit_fixed_point_{name}"] = float(limit.rho[limit.stable][0])
        outcome.arrays[f"map_{name}"] = block_map(rho, block, length)
        outcome.arrays[f"fixed_point_{name}"] = fixed_point
    return outcome


def draw_tanh(arrays, sigma_ws: tuple, values: str, layers: int, width: int):
    figure, (left, right) = plots.row(2, (plots.PAGE, 2.1))
    rho, ends = arrays["rho"], []
    left.plot(rho, rho, color="0.6", lw=0.8, label="no change")
    for colour, sigma_w in zip(COLOURS, sigma_ws):
        update, line, cosine_SxL, star = (
            arrays[f"{kind}_sigma_w_{sigma_w:g}"]
            for kind in ("map", "theory", "measured", "fixed_point")
        )
        label = rf"$\sigma_w={sigma_w:g}$, $\rho^*={star:.3f}$"
        left.plot(rho, update, color=colour, label=label)
        left.plot([star], [star], "*", color=colour, ms=8, clip_on=False, zorder=3)
        right.plot(line, color=colour)
        _dots(right, cosine_SxL, color=colour)
        ends.append(f"{cosine_SxL[:, layers // 2 :].mean():.3f}")
    left.set(xlabel=r"$\rho$ before a block", ylabel=r"$\rho$ after", xlim=(0, 1), ylim=(0, 1.01))
    right.set(xlabel="layer", ylabel=r"cosine of two tokens $\rho$", ylim=(-0.03, 1.03))
    variance = r"\sigma_w^2" if values == "equal" else "1"
    plots.add_finding(
        figure,
        rf"tanh, $\sigma_V^2={variance}$: in layers {layers // 2} to {layers} networks have cosine "
        + " and ".join(ends),
        f"Right: lines theory, dots {len(cosine_SxL)} networks of $d={width}$ with standard "
        "deviations over them. Stars: stable fixed points.",
        left,
    )
    return figure


def measure_no_residual(
    betas: tuple, layers: int, sigma_b2: float, points: int, encoders: Encoders
) -> Outcome:
    """Measures Figure C.3: the cosine after each layer of networks without residuals.

    The limit collapses after one layer below beta = sqrt(2); networks of finite T do not.

    Args:
      betas: Values of beta of the networks.
      layers: The depth L.
      sigma_b2: The variance of the biases.
      points: Grid points of the theory of one block on each axis.
      encoders: The random networks.
    """
    beta, sigma_w2 = jnp.linspace(0, 3, points), jnp.linspace(0.05, 2, points)
    # Without residuals alpha_SA = alpha_MLP = 0.
    grid = Block(beta[:, None], 0.0, 0.0, 1.0, sigma_w2[None], sigma_b2)
    first_block = block_map(0.0, grid, encoders.length)
    outcome = Outcome({"beta": beta, "sigma_w2": sigma_w2, "first_block": first_block})
    gaps = {theory: [] for theory in THEORIES}
    for b in betas:
        block = Block(b, 0.0, 0.0, 1.0, 1.0, sigma_b2)
        cosine_SxL, lines = encoders.cosines(block, layers), _lines(block, layers, encoders.length)
        outcome.curve(f"{{}}_beta_{b:g}", cosine_SxL, **lines)
        for theory, line_L in lines.items():
            gaps[theory].append(cosine_SxL - line_L)
        outcome.metrics[f"cosine_1_beta_{b:g}"] = over_seeds(cosine_SxL[:, 1])
        outcome.baselines[f"limit_cosine_1_beta_{b:g}"] = float(propagate(0.0, block, 1)[1])
    for theory, gap_SxL in gaps.items():
        error = jackknife(root_mean_square, np.concatenate(gap_SxL, axis=1))
        outcome.metrics[f"{theory}_rms_error"] = error
    outcome.arrays["rms"] = [outcome.metrics[f"{theory}_rms_error"].mean for theory in THEORIES]
    return outcome


def draw_no_residual(arrays, betas: tuple, length: int, width: int):
    figure, (left, right) = plots.row(2, (plots.PAGE, 2.3))
    image = left.imshow(arrays["first_block"].T, extent=(0, 3, 0.05, 2), vmin=0, **MAP)
    left.axvline(
        2**0.5, color=COLOURS[1], ls="--", label=r"$\beta_c(0)$: the limit is 1 left of it"
    )
    left.set(xlabel=r"score scale $\beta$", ylabel=r"$\sigma_w^2$")
    plots.label_panel(left, f"after one block, from cosine 0 (exact, $T={length}$)")
    plots.add_colour_bar(figure, image, left, r"cosine of two tokens $\rho$")
    for colour, b in zip(COLOURS, betas):
        for theory, dashes in THEORIES.items():
            distance_L = 1 - arrays[f"{theory}_beta_{b:g}"]
            right.plot(distance_L, color=colour, ls=dashes)
        distance_SxL = 1 - arrays[f"measured_beta_{b:g}"]
        shown = slice(0, None, max(distance_SxL.shape[1] // 12, 1))
        layers = np.arange(distance_SxL.shape[1])[shown]
        style = {"fmt": "o", "color": colour, "label": rf"$\beta={b:g}$"}
        plots.means(right, layers, distance_SxL[:, shown], **style)
    right.set(xlabel="layer", ylabel=r"distance to collapse $1-\rho$", yscale="log")
    right.set_ylim(1e-5, 1.5)
    plots.label_panel(right, r"$\sigma_V^2=\sigma_w^2=1$")
    exact_error, limit_error = arrays["rms"]
    plots.add_finding(
        figure,
        "Without residuals tokens soon agree at any $\\beta$; root mean square error: exact "
        f"{exact_error:.3f}, limit {limit_error:.3f}",
        f"Dots: {len(distance_SxL)} networks of $d={width}$ with standard errors; lines: exact "
        "theory; dashed: the paper's limit.",
    )
    return figure


def _dots(axis, cosine_SxL: np.ndarray, **style) -> None:
    """Draws means and standard deviations over networks, at 13 layers or fewer."""
    layers = cosine_SxL.shape[1] - 1
    shown = np.unique(np.linspace(0, layers, min(layers, 12) + 1).astype(int))
    spread_L = cosine_SxL.std(0, ddof=1) if len(cosine_SxL) > 1 else np.zeros(layers + 1)
    axis.errorbar(shown, cosine_SxL.mean(0)[shown], spread_L[shown], **DOT | style)
    axis.xaxis.get_major_locator().set_params(integer=True)


DEPTH = Figure(measure=measure_depth, draw=draw_depth)
TANH = Figure(measure=measure_tanh, draw=draw_tanh, check=check_tanh)
NO_RESIDUAL = Figure(measure=measure_no_residual, draw=draw_no_residual)
