"""The boundary of rank collapse (arXiv 2505.24333): Figure 1c, and alpha_c against depth.

Tokens count as collapsed if their cosine exceeds 1 - epsilon after the last layer; the paper gives
no threshold. alpha_SA is the residual weight of attention, and alpha_c its value at the boundary.
Axes: S networks, B beta, A alpha_SA, L depths.
"""

import jax.numpy as jnp
import numpy as np

from experiments.papers import plots
from experiments.papers.outcome import Figure, Outcome, exact, jackknife, root_mean_square
from experiments.papers.plots import COLOURS
from experiments.papers.two_failure_modes import one_head
from experiments.papers.two_failure_modes.networks import Encoders, Strengths
from jaxformer.training.metrics import over_seeds
from theory.signal import critical_alpha, propagate

HEADS_PER_NETWORK = 10  # single heads per network of the figure; they are cheap to measure
MARGIN = 0.05  # networks with |alpha - alpha_c| below this share of alpha_c are not counted
THEORIES = ("exact", "limit")  # at T tokens, and for T -> infinity


def measure_trainability(
    layers: int,
    points: int,
    betas: tuple,
    alphas: tuple,
    epsilon: float,
    strengths: Strengths,
    encoders: Encoders,
) -> Outcome:
    """Measures Figure 1c: the cosine after all layers against beta and alpha_SA, and alpha_c.

    Args:
      layers: The depth L.
      points: Grid points of the theory on each axis.
      betas: Values of beta at which networks are measured.
      alphas: Values of alpha_SA at which networks are measured.
      epsilon: Cosines above 1 - epsilon count as collapsed.
      strengths: The other parameters of a block.
      encoders: The random networks.
    """
    lengths = dict(zip(THEORIES, (encoders.length, None)))  # None is T -> infinity
    beta, alpha = jnp.linspace(0, 2.5, points), jnp.linspace(0, 2.5, points)
    block = strengths.block(beta[:, None], alpha[None])
    cosine = np.asarray(propagate(0.0, block, layers, encoders.length)[-1])
    start = block.replace(beta=0.0, alpha_sa=0.0)
    edges = {
        name: np.asarray(critical_alpha(beta, start, layers, T, epsilon))
        for name, T in lengths.items()
    }
    measured_BxAxS = np.empty((len(betas), len(alphas), encoders.n_seeds))
    predicted_BxA = {name: np.empty((len(betas), len(alphas))) for name in THEORIES}
    for i, j in np.ndindex(len(betas), len(alphas)):
        point_block = start.replace(beta=betas[i], alpha_sa=alphas[j])
        measured_BxAxS[i, j] = encoders.cosines(point_block, layers)[:, -1]
        for name, T in lengths.items():
            predicted_BxA[name][i, j] = propagate(0.0, point_block, layers, T)[-1]
    metrics = {"critical_alpha_at_beta_0": exact(edges["exact"][0])}
    measured_SxBxA = np.moveaxis(measured_BxAxS, -1, 0)
    for name, theory_BxA in predicted_BxA.items():
        metrics[f"{name}_rms_error"] = jackknife(root_mean_square, measured_SxBxA - theory_BxA)
    for name, edge in edges.items():
        edge_B = np.interp(betas, beta, edge)
        share_S = share_on_predicted_side(measured_BxAxS, np.array(alphas), edge_B, epsilon)
        metrics[f"{name}_on_their_side"] = over_seeds(share_S)
    arrays = {
        "beta": beta,
        "alpha": alpha,
        "cosine": cosine,
        "critical_alpha": edges["exact"],
        "critical_alpha_limit": edges["limit"],
        "measured_beta": betas,
        "measured_alpha": alphas,
        "measured": measured_BxAxS,
        "rms": [metrics[f"{name}_rms_error"].mean for name in THEORIES],
    }
    baselines = {"limit_critical_alpha_at_beta_0": float(edges["limit"][0])}
    return Outcome(arrays, metrics, baselines)


def share_on_predicted_side(
    measured_BxAxS: np.ndarray, alpha_A: np.ndarray, edge_B: np.ndarray, epsilon: float
) -> np.ndarray:
    """Returns the share of points (beta, alpha_SA) at which the theory's prediction is right, (S,).

    The theory predicts that a network collapses if alpha_SA < alpha_c(beta), and otherwise not.
    Points close to alpha_c do not count.

    Args:
      measured_BxAxS: The cosines of networks after their last layer.
      alpha_A: alpha_SA of the networks.
      edge_B: alpha_c at beta of the networks.
      epsilon: Cosines above 1 - epsilon count as collapsed.
    """
    edge_Bx1 = edge_B[:, None]
    is_counted_BxA = np.abs(alpha_A - edge_Bx1) > MARGIN * edge_Bx1
    is_right_BxAxS = (measured_BxAxS > 1 - epsilon) == (alpha_A < edge_Bx1)[..., None]
    return is_right_BxAxS[is_counted_BxA].mean(0)


def draw_trainability(arrays, layers: int, length: int, width: int, epsilon: float):
    figure, (axis,) = plots.row(1, (plots.COLUMN, 2.6))
    beta, edge = arrays["beta"], arrays["critical_alpha"]
    style = {"origin": "lower", "aspect": "auto", "cmap": "cividis_r", "vmin": -4, "vmax": 0}
    log_distance = np.log10(np.maximum(1 - arrays["cosine"], 1e-6))
    image = axis.imshow(log_distance.T, extent=(0, 2.5, 0, 2.5), **style)
    axis.plot(beta, edge, color=COLOURS[1], lw=1.8, label=r"$\alpha_c$, exact theory")
    dotted = {"color": "black", "lw": 1.2, "ls": ":", "label": r"$\alpha_c$, paper's limit"}
    axis.plot(beta, arrays["critical_alpha_limit"], **dotted)
    axis.axvline(2**0.5, color=COLOURS[5], lw=1.6, ls="--", label=r"$\beta_c(0)=$√2")
    grid = np.meshgrid(arrays["measured_beta"], arrays["measured_alpha"], indexing="ij")
    collapsed_BxA = arrays["measured"].mean(-1) > 1 - epsilon
    dots = {"s": 22, "linewidths": 0.7, "color": "white", "edgecolors": "black", "zorder": 3}
    markers = {"collapsed": ("X", collapsed_BxA), "not collapsed": ("o", ~collapsed_BxA)}
    for state, (marker, selected_BxA) in markers.items():
        positions = [values_BxA[selected_BxA] for values_BxA in grid]
        style = dots | {"marker": marker, "label": f"network, {state}"}
        axis.scatter(*positions, clip_on=False, **style)
    box = {"boxstyle": "round", "facecolor": "white", "alpha": 0.85, "edgecolor": "none"}
    text = {"ha": "center", "va": "center", "fontsize": plots.figure_style.SMALL, "bbox": box}
    low = min(float(edge[0]), 2.0)
    axis.text(0.45, 0.42 * low, "rank collapse", **text)
    axis.text(0.45, (low + 2.5) / 2 + 0.1, "trainable", **text)
    axis.text(1.95, 2.3, "entropy\ncollapse", **text)
    axis.set(xlabel=r"score scale $\beta$", ylabel=r"residual strength $\alpha_{SA}$")
    axis.set(xlim=(0, 2.5), ylim=(0, 2.5))
    exact_error, limit_error = arrays["rms"]
    label = r"distance to collapse $\log_{10}(1-\rho)$"
    plots.add_colour_bar(figure, image, axis, label, extend="min")
    plots.add_finding(
        figure,
        rf"At low $\beta$ tokens stay apart above $\alpha_c={edge[0]:.2f}$; error in the cosine of "
        f"networks: exact {exact_error:.3f}, limit {limit_error:.3f}",
        rf"{layers} layers, $T={length}$; networks of $d={width}$ at initialisation.",
        axis,
        columns=2,
    )
    return figure


def measure_critical(
    depths: tuple,
    alphas: tuple,
    beta: float,
    epsilon: float,
    widths: tuple,
    overlap_betas: tuple,
    strengths: Strengths,
    encoders: Encoders,
) -> Outcome:
    """Measures alpha_c of networks against depth, and Y_q of heads at several widths.

    Args:
      depths: Numbers of layers.
      alphas: Increasing values of alpha_SA between which the crossing is interpolated.
      beta: The beta of the networks.
      epsilon: Cosines above 1 - epsilon count as collapsed.
      widths: Widths of the heads whose Y_q is measured.
      overlap_betas: Their values of beta.
      strengths: The other parameters of a block.
      encoders: The random networks.
    """
    length, alpha_A = encoders.length, np.array(alphas)
    cosine_AxSxL = np.stack(
        [encoders.cosines(strengths.block(beta, alpha), max(depths)) for alpha in alphas]
    )
    start = strengths.block(0.0, 0.0)
    measured_LxS = np.array([crossings(alpha_A, cosine_AxSxL[..., L], epsilon) for L in depths])
    outcome = Outcome({"depths": depths, "measured": measured_LxS})
    outcome.grid("alpha_c_{}", measured_LxS, depths)
    for name, T in zip(THEORIES, (length, None)):
        line = [float(critical_alpha(beta, start, L, T, epsilon)) for L in depths]
        outcome.baselines |= {f"{name}_alpha_c_{L}": a for L, a in zip(depths, line, strict=True)}
        outcome.arrays[f"{name}_alpha_c"] = line
    for width in widths:
        n_heads = HEADS_PER_NETWORK * encoders.n_seeds
        heads = one_head.Heads(length, width, encoders.seed, n_heads)
        for b in overlap_betas:
            overlap_S = [np.sum(A**2, -1).mean() for A, _ in heads.maps_and_outputs(b, 0.0)]
            outcome.metrics[f"overlap_beta_{b:g}_width_{width}"] = over_seeds(overlap_S)
    return outcome


def crossings(alpha_A: np.ndarray, cosine_AxS: np.ndarray, epsilon: float) -> list[float]:
    """Returns the alpha at which each network's cosine falls below 1 - epsilon, S values.

    ln(1 - rho) is interpolated linearly between the measured alphas. If it crosses outside them,
    the nearest measured alpha is returned.
    """
    distance_AxS = np.log(np.maximum(1 - cosine_AxS, 1e-7))
    rising_SxA = np.maximum.accumulate(distance_AxS, 0).T
    return [float(np.interp(np.log(epsilon), distance_A, alpha_A)) for distance_A in rising_SxA]


def draw_critical(arrays, length: int, width: int, beta: float):
    figure, (axis,) = plots.row(1, (plots.COLUMN, 2.1))
    depths, measured_SxL = arrays["depths"], arrays["measured"].T
    axis.plot(
        depths, arrays["exact_alpha_c"], color=COLOURS[0], label=f"exact theory, $T={length}$"
    )
    axis.plot(depths, arrays["limit_alpha_c"], "--", color="black", label="paper's limit")
    style = {"fmt": "o", "color": COLOURS[1], "label": f"networks, $d={width}$"}
    plots.means(axis, depths, measured_SxL, **style)
    axis.set(xlabel="layers $L$", ylabel=r"critical residual strength $\alpha_c$", xscale="log")
    plots.value_ticks(axis, depths)
    first, last = measured_SxL.mean(0)[[0, -1]]
    plots.add_finding(
        figure,
        rf"Deeper networks need a stronger residual: $\alpha_c$ grows from {first:.2f} at "
        f"{depths[0]} layers to {last:.2f} at {depths[-1]}",
        rf"$\beta={beta:g}$. Bars: standard errors over {len(measured_SxL)} networks.",
        axis,
    )
    return figure


TRAINABILITY = Figure(measure=measure_trainability, draw=draw_trainability)
CRITICAL = Figure(measure=measure_critical, draw=draw_critical)
