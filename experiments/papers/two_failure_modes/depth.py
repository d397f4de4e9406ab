"""Cosine of tokens through many blocks (arXiv 2505.24333): figures 1c, 1d,e, 5 and C.3.

Lines are theory.signal (`exact` at T tokens, the paper's `limit`), dots random encoders with random
directions as input. Error bars are standard deviations over networks, as in the paper.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.shared import plots
from experiments.shared.outcome import Outcome, exact
from experiments.shared.plots import COLOURS
from jaxformer.training.metrics import over_seeds
from theory.signal import Block, block_map, critical_alpha, fixed_points, network, propagate

DOT = {"fmt": "o", "ms": 3.5, "capsize": 2, "lw": 1}
THEORIES = {"exact": "-", "limit": "--"}
MAP = {"origin": "lower", "aspect": "auto", "cmap": "cividis", "vmax": 1}


class Encoders(NamedTuple):
    """The random networks of a figure: one for each seed."""

    length: int
    width: int
    seed: int
    n_seeds: int
    heads: int = 1

    def cosines(self, block: Block, layers: int) -> np.ndarray:
        """(seeds, layers + 1) mean cosines, measured in float32 because that is faster."""
        keys = jax.vmap(jax.random.key)(np.arange(self.seed, self.seed + self.n_seeds))
        sizes = (layers, self.length, self.width, self.heads)
        signal = network.measure(keys, block, *sizes, dtype=np.float32)
        return np.asarray(signal.cosine, float)


class Strengths(NamedTuple):
    """The MLP's residual weight and the variances, which are the same in all blocks of a figure."""

    alpha_mlp: float
    sigma2: float
    sigma_b2: float

    def block(self, beta, alpha_sa) -> Block:
        return Block(beta, alpha_sa, self.alpha_mlp, self.sigma2, self.sigma2, self.sigma_b2)


def measure_trainability(
    layers: int,
    points: int,
    betas: tuple,
    alphas: tuple,
    epsilon: float,
    strengths: Strengths,
    encoders: Encoders,
) -> Outcome:
    """Figure 1c: the cosine after all layers over (beta, alpha_SA), its boundaries, networks."""
    length = encoders.length
    beta, alpha = jnp.linspace(0, 2.5, points), jnp.linspace(0, 2.5, points)
    block = strengths.block(beta[:, None], alpha[None])
    cosine = np.asarray(propagate(0.0, block, layers, length)[-1])
    start = block.replace(beta=0.0, alpha_sa=0.0)
    edge = np.asarray(critical_alpha(beta, start, layers, length, epsilon))
    edge_limit = np.asarray(critical_alpha(beta, start, layers, epsilon=epsilon))
    measured_BxAxS = np.empty((len(betas), len(alphas), encoders.n_seeds))
    gaps = {"exact": [], "limit": []}
    for i, b in enumerate(betas):
        for j, a in enumerate(alphas):
            point = start.replace(beta=b, alpha_sa=a)
            measured_BxAxS[i, j] = encoders.cosines(point, layers)[:, -1]
            for name, T in (("exact", length), ("limit", None)):
                predicted = float(propagate(0.0, point, layers, T)[-1])
                gaps[name].append(measured_BxAxS[i, j].mean() - predicted)
    rms = {name: float(np.sqrt(np.mean(np.square(gap)))) for name, gap in gaps.items()}
    arrays = {"beta": beta, "alpha": alpha, "cosine": cosine, "critical_alpha": edge}
    arrays |= {"critical_alpha_limit": edge_limit, "measured_beta": betas}
    arrays |= {"measured_alpha": alphas, "measured": measured_BxAxS, "rms": [*rms.values()]}
    metrics = {"critical_alpha_at_beta_0": exact(edge[0]), "exact_rms_error": exact(rms["exact"])}
    baselines = {"limit_critical_alpha_at_beta_0": float(edge_limit[0])}
    return Outcome(arrays, metrics, baselines | {"limit_rms_error": rms["limit"]})


def draw_trainability(arrays, layers: int, length: int, width: int):
    figure, (axis,) = plots.row(1, (7, 5))
    beta, edge, cosine = arrays["beta"], arrays["critical_alpha"], arrays["cosine"]
    low = cosine.min()
    axis.imshow(cosine.T, extent=(0, 2.5, 0, 2.5), vmin=low, **MAP)
    axis.plot(beta, edge, color=COLOURS[5], lw=2.2, label=r"$\alpha_c$, exact theory")
    limit = {"color": "black", "lw": 1.2, "ls": ":", "label": r"$\alpha_c$, paper's limit"}
    axis.plot(beta, arrays["critical_alpha_limit"], **limit)
    axis.axvline(2**0.5, color=COLOURS[1], lw=2, ls="--", label=r"$\beta_c(0)=\sqrt{2}$")
    grid = np.meshgrid(arrays["measured_beta"], arrays["measured_alpha"], indexing="ij")
    values, look = arrays["measured"].mean(-1), {"s": 70, "edgecolors": "black"}
    look |= {"cmap": MAP["cmap"], "vmin": low, "vmax": 1, "label": f"networks, $d={width}$"}
    image = axis.scatter(*map(np.ravel, grid), c=values.ravel(), **look)
    box = {"boxstyle": "round", "facecolor": "white", "alpha": 0.85, "edgecolor": "none"}
    words = {"ha": "center", "va": "center", "fontsize": 9, "bbox": box}
    low = min(float(edge[0]), 2.0)
    axis.text(0.4, low / 2, "rank collapse", **words)
    axis.text(0.72, (low + 2.5) / 2, "trainable", **words)
    axis.text(2.0, 1.95, "entropy collapse", **words)
    axis.set(xlabel=r"score scale $\beta$", ylabel=r"residual strength $\alpha_{SA}$")
    axis.set(xlim=(0, 2.5), ylim=(0, 2.5))
    exact, limit = arrays["rms"]
    axis.set_title(
        rf"{layers} layers, $T={length}$: low-$\beta$ tokens stay apart above "
        rf"$\alpha_c={edge[0]:.2f}$"
        f"\nerror against networks: exact {exact:.3f}, limit {limit:.3f}"
    )
    axis.legend(loc="lower right")
    figure.colorbar(image, ax=axis, label=f"cosine of two tokens after {layers} layers")
    return figure


def measure_depth(panels: tuple, strengths: Strengths, encoders: Encoders) -> Outcome:
    """Figure 1d,e: cosine by layer; a panel is (layers, beta, (alpha_SA, ...))."""
    arrays, metrics, baselines, worst = {}, {}, {}, {"exact": 0.0, "limit": 0.0}
    for layers, beta, alphas in panels:
        for alpha in alphas:
            block, name = strengths.block(beta, alpha), f"beta_{beta:g}_alpha_{alpha:g}"
            cosine_SxL = encoders.cosines(block, layers)
            arrays[f"measured_{name}"] = cosine_SxL
            for theory in THEORIES:
                line = np.asarray(propagate(0.0, block, layers, encoders.length, theory))
                arrays[f"{theory}_{name}"] = line
                gap = float(np.abs(line - cosine_SxL.mean(0)).max())
                worst[theory] = max(worst[theory], gap)
                if theory == "exact":
                    metrics[f"exact_largest_error_{name}"] = exact(gap)
                else:
                    baselines[f"limit_largest_error_{name}"] = gap
            metrics[f"cosine_{name}"] = over_seeds(cosine_SxL[:, -1])
    return Outcome(arrays | {"largest_errors": [*worst.values()]}, metrics, baselines)


def draw_depth(arrays, panels: tuple, length: int, width: int):
    figure, axes = plots.row(len(panels), (5 * len(panels), 4), sharey=True)
    for axis, (layers, beta, alphas) in zip(axes, panels, strict=True):
        for colour, alpha in zip(COLOURS, alphas):
            name, label = f"beta_{beta:g}_alpha_{alpha:g}", rf"$\alpha_{{SA}}={alpha:g}$"
            for theory, style in THEORIES.items():
                axis.plot(arrays[f"{theory}_{name}"], color=colour, ls=style, lw=1.5)
            measured_SxL = arrays[f"measured_{name}"]
            _dots(axis, measured_SxL, color=colour, label=label)
        axis.set(xlabel="layer", title=rf"{layers} layers, $\beta={beta:g}$", ylim=(-0.03, 1.03))
        axis.plot([], [], color="0.4", label=f"exact theory, $T={length}$")
        axis.plot([], [], color="0.4", ls="--", label="paper's limit")
        axis.legend()
    axes[0].set_ylabel(r"cosine of two tokens $\rho$")
    exact, limit = arrays["largest_errors"]
    figure.suptitle(
        f"Networks ($d={width}$, {len(measured_SxL)} seeds) follow the exact theory: largest error "
        f"{exact:.3f}, of the limit {limit:.3f}"
    )
    return figure


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
    """Figure 5: with tanh a large variance keeps tokens apart at any depth: a stable cosine < 1."""
    rho = np.linspace(0, 1, 201)
    arrays, metrics, baselines = {"rho": rho}, {}, {}
    for sigma_w in sigma_ws:
        name, sigma_v2 = f"sigma_w_{sigma_w:g}", sigma_w**2 if values == "equal" else 1.0
        block = Block(beta, alpha_sa, alpha_mlp, sigma_v2, sigma_w**2, sigma_b2, "tanh")
        roots, limit = fixed_points(block, encoders.length), fixed_points(block)
        star = float(roots.rho[roots.stable][0])
        cosine_SxL = encoders.cosines(block, layers)
        metrics[f"fixed_point_{name}"] = exact(star)
        metrics[f"measured_{name}"] = over_seeds(cosine_SxL[:, -1])
        baselines[f"limit_fixed_point_{name}"] = float(limit.rho[limit.stable][0])
        line = propagate(0.0, block, layers, encoders.length)
        arrays |= {f"map_{name}": block_map(rho, block, encoders.length), f"theory_{name}": line}
        arrays |= {f"measured_{name}": cosine_SxL, f"fixed_point_{name}": star}
    return Outcome(arrays, metrics, baselines)


def draw_tanh(arrays, sigma_ws: tuple, values: str, layers: int, width: int):
    figure, (left, right) = plots.row(2, (10, 4))
    rho, ends = arrays["rho"], []
    left.plot(rho, rho, color="0.6", lw=0.8)
    for colour, sigma_w in zip(COLOURS, sigma_ws):
        update, line, cosine_SxL, star = (
            arrays[f"{what}_sigma_w_{sigma_w:g}"]
            for what in ("map", "theory", "measured", "fixed_point")
        )
        label = rf"$\sigma_w={sigma_w:g}$, $\rho^*={star:.3f}$"
        left.plot(rho, update, color=colour, lw=1.8, label=label)
        left.plot([star], [star], "*", color=colour, ms=12)
        right.plot(line, color=colour, lw=1.5)
        _dots(right, cosine_SxL, color=colour)
        ends.append(f"{cosine_SxL[:, -1].mean():.3f}")
    left.set(xlabel=r"$\rho$ before a block", ylabel=r"$\rho$ after", xlim=(0, 1), ylim=(0, 1.01))
    right.set(xlabel="layer", ylabel=r"cosine of two tokens $\rho$", ylim=(-0.03, 1.03))
    left.legend()
    right.set_title("lines theory, dots networks")
    variance = r"\sigma_w^2" if values == "equal" else "1"
    figure.suptitle(
        rf"tanh, $\sigma_V^2={variance}$: after {layers} layers networks ($d={width}$) have cosine "
        + " and ".join(ends)
    )
    return figure


def measure_no_residual(
    betas: tuple, layers: int, sigma_b2: float, points: int, encoders: Encoders
) -> Outcome:
    """Figure C.3: without residuals the limit collapses at once below sqrt(2); networks do not."""
    beta, sigma_w2 = jnp.linspace(0, 3, points), jnp.linspace(0.05, 2, points)
    grid = Block(beta[:, None], 0.0, 0.0, 1.0, sigma_w2[None], sigma_b2)
    first = block_map(0.0, grid, encoders.length)
    arrays: dict[str, Any] = {"beta": beta, "sigma_w2": sigma_w2, "first_block": first}
    metrics, baselines, squares = {}, {}, {"exact": [], "limit": []}
    for b in betas:
        block = Block(b, 0.0, 0.0, 1.0, 1.0, sigma_b2)
        cosine_SxL = encoders.cosines(block, layers)
        for theory in THEORIES:
            line = np.asarray(propagate(0.0, block, layers, encoders.length, theory))
            squares[theory].append((line - cosine_SxL.mean(0)) ** 2)
            arrays[f"{theory}_beta_{b:g}"] = line
        metrics[f"cosine_1_beta_{b:g}"] = over_seeds(cosine_SxL[:, 1])
        baselines[f"limit_cosine_1_beta_{b:g}"] = float(propagate(0.0, block, 1)[1])
        arrays[f"measured_beta_{b:g}"] = cosine_SxL
    rms = {name: float(np.sqrt(np.mean(x))) for name, x in squares.items()}
    metrics["exact_rms_error"], baselines["limit_rms_error"] = exact(rms["exact"]), rms["limit"]
    return Outcome(arrays | {"rms": [*rms.values()]}, metrics, baselines)


def draw_no_residual(arrays, betas: tuple, length: int, width: int):
    figure, (left, right) = plots.row(2, (11, 4.2))
    image = left.imshow(arrays["first_block"].T, extent=(0, 3, 0.05, 2), vmin=0, **MAP)
    left.axvline(2**0.5, color=COLOURS[1], lw=2, ls="--", label=r"$\beta_c(0)$: limit is 1 left")
    left.set(xlabel=r"score scale $\beta$", ylabel=r"$\sigma_w^2$")
    left.set_title(f"cosine after one block, from 0 (exact, $T={length}$)")
    left.legend(loc="upper left")
    figure.colorbar(image, ax=left)
    for colour, b in zip(COLOURS, betas):
        for theory, style in THEORIES.items():
            right.plot(arrays[f"{theory}_beta_{b:g}"], color=colour, ls=style, lw=1.4)
        _dots(right, arrays[f"measured_beta_{b:g}"], color=colour, label=rf"$\beta={b:g}$")
    right.set(xlabel="layer", ylabel=r"cosine of two tokens $\rho$", ylim=(-0.03, 1.03))
    right.set_title(
        rf"$\sigma_V^2=\sigma_w^2=1$: dots networks ($d={width}$), lines exact, dashed limit"
    )
    right.legend(loc="lower right")
    exact, limit = arrays["rms"]
    figure.suptitle(
        "Without residuals tokens soon agree at any $\\beta$; root mean square error: exact "
        f"{exact:.3f}, limit {limit:.3f}"
    )
    return figure


def _dots(axis, cosine_SxL: np.ndarray, **look) -> None:
    """Means and standard deviations over networks, at no more than 13 of the layers."""
    layers = cosine_SxL.shape[1] - 1
    shown = np.unique(np.linspace(0, layers, min(layers, 12) + 1).astype(int))
    spread_L = cosine_SxL.std(0, ddof=1) if len(cosine_SxL) > 1 else np.zeros(layers + 1)
    axis.errorbar(shown, cosine_SxL.mean(0)[shown], spread_L[shown], **DOT | look)
    axis.xaxis.get_major_locator().set_params(integer=True)
