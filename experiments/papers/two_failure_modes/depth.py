"""Cosine of tokens through many blocks (arXiv 2505.24333): figures 1c, 1d,e, 5 and C.3.

Lines are theory.signal (`exact` at T tokens, the paper's `limit`), dots random encoders with random
directions as input. Error bars are standard deviations over networks, as in the paper.
"""

import jax
import jax.numpy as jnp
import numpy as np

from experiments.shared.outcome import Outcome, exact
from experiments.shared.plots import COLOURS, pyplot
from jaxformer.training.metrics import over_seeds
from theory.signal import Block, block_map, critical_alpha, fixed_points, propagate
from theory.signal.network import measure

DOT = {"fmt": "o", "ms": 3.5, "capsize": 2, "lw": 1}


def trainability(
    layers: int,
    length: int,
    width: int,
    heads: int,
    points: int,
    betas: tuple,
    alphas: tuple,
    epsilon: float,
    alpha_mlp: float,
    sigma2: float,
    sigma_b2: float,
    seed: int,
    n_seeds: int,
) -> Outcome:
    """Figure 1c: the cosine after all layers over (beta, alpha_SA), its boundaries, networks."""
    beta, alpha = jnp.linspace(0, 2.5, points), jnp.linspace(0, 2.5, points)
    block = Block(beta[:, None], alpha[None], alpha_mlp, sigma2, sigma2, sigma_b2)
    cosine = np.asarray(propagate(0.0, block, layers, length)[-1])
    start = block.replace(beta=0.0, alpha_sa=0.0)
    edge = np.asarray(critical_alpha(beta, start, layers, length, epsilon))
    edge_limit = np.asarray(critical_alpha(beta, start, layers, epsilon=epsilon))
    measured_BxAxS, gaps = np.empty((len(betas), len(alphas), n_seeds)), {"exact": [], "limit": []}
    for i, b in enumerate(betas):
        for j, a in enumerate(alphas):
            point = start.replace(beta=b, alpha_sa=a)
            signal = _networks(point, layers, length, width, heads, seed, n_seeds)
            measured_BxAxS[i, j] = signal[:, -1]
            for name, T in (("exact", length), ("limit", None)):
                predicted = float(propagate(0.0, point, layers, T)[-1])
                gaps[name].append(signal[:, -1].mean() - predicted)
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(7, 5), layout="constrained")
    colours = {"cmap": "cividis", "vmin": float(cosine.min()), "vmax": 1}
    extent = (0, 2.5, 0, 2.5)
    axis.imshow(cosine.T, origin="lower", aspect="auto", extent=extent, **colours)
    axis.plot(beta, edge, color=COLOURS[5], lw=2.2, label=r"$\alpha_c$, exact theory")
    axis.plot(beta, edge_limit, color="black", lw=1.2, ls=":", label=r"$\alpha_c$, paper's limit")
    axis.axvline(2**0.5, color=COLOURS[1], lw=2, ls="--", label=r"$\beta_c(0)=\sqrt{2}$")
    grid = np.stack(np.meshgrid(betas, alphas, indexing="ij"), -1).reshape(-1, 2)
    image = axis.scatter(
        *grid.T,
        c=measured_BxAxS.mean(-1).ravel(),
        s=70,
        edgecolors="black",
        **colours,
        label=f"networks, $d={width}$",
    )
    box = {"boxstyle": "round", "facecolor": "white", "alpha": 0.85, "edgecolor": "none"}
    words = {"ha": "center", "va": "center", "fontsize": 9, "bbox": box}
    low = min(float(edge[0]), 2.0)
    axis.text(0.4, low / 2, "rank collapse", **words)
    axis.text(0.72, (low + 2.5) / 2, "trainable", **words)
    axis.text(2.0, 1.95, "entropy collapse", **words)
    axis.set(xlabel=r"score scale $\beta$", ylabel=r"residual strength $\alpha_{SA}$")
    axis.set(xlim=(0, 2.5), ylim=(0, 2.5))
    rms = {name: float(np.sqrt(np.mean(np.square(gap)))) for name, gap in gaps.items()}
    axis.set_title(
        rf"{layers} layers, $T={length}$: low-$\beta$ tokens stay apart above "
        rf"$\alpha_c={edge[0]:.2f}$" + f"\nerror against networks: exact {rms['exact']:.3f}, "
        f"limit {rms['limit']:.3f}",
        fontsize=10,
    )
    axis.legend(fontsize=8, loc="lower right")
    figure.colorbar(image, ax=axis, label=f"cosine of two tokens after {layers} layers")
    arrays = {"beta": beta, "alpha": alpha, "cosine": cosine, "critical_alpha": edge}
    arrays |= {"critical_alpha_limit": edge_limit, "measured_beta": betas}
    arrays |= {"measured_alpha": alphas, "measured": measured_BxAxS}
    metrics = {
        "critical_alpha_at_beta_0": exact(edge[0]),
        "exact_rms_error": exact(rms["exact"]),
    }
    baselines = {
        "limit_critical_alpha_at_beta_0": float(edge_limit[0]),
        "limit_rms_error": rms["limit"],
    }
    return Outcome(figure, arrays, metrics, baselines)


def depth(
    panels: tuple,
    length: int,
    width: int,
    heads: int,
    alpha_mlp: float,
    sigma2: float,
    sigma_b2: float,
    seed: int,
    n_seeds: int,
) -> Outcome:
    """Figure 1d,e: cosine by layer; a panel is (layers, beta, (alpha_SA, ...))."""
    plt = pyplot()
    figure, axes = plt.subplots(
        1, len(panels), figsize=(5 * len(panels), 4), layout="constrained", sharey=True
    )
    arrays, metrics, baselines, worst = {}, {}, {}, {"exact": 0.0, "limit": 0.0}
    for axis, (layers, beta, alphas) in zip(np.atleast_1d(axes), panels, strict=True):
        for colour, alpha in zip(COLOURS, alphas):
            block = Block(beta, alpha, alpha_mlp, sigma2, sigma2, sigma_b2)
            cosine_SxL = _networks(block, layers, length, width, heads, seed, n_seeds)
            name = f"beta_{beta:g}_alpha_{alpha:g}"
            arrays[f"measured_{name}"] = cosine_SxL
            for theory, style in (("exact", "-"), ("limit", "--")):
                line = np.asarray(propagate(0.0, block, layers, length, theory))
                axis.plot(np.arange(layers + 1), line, color=colour, ls=style, lw=1.5)
                arrays[f"{theory}_{name}"] = line
                gap = float(np.abs(line - cosine_SxL.mean(0)).max())
                worst[theory] = max(worst[theory], gap)
                held = metrics if theory == "exact" else baselines
                held[f"{theory}_largest_error_{name}"] = exact(gap) if held is metrics else gap
            metrics[f"cosine_{name}"] = over_seeds(cosine_SxL[:, -1])
            shown = np.unique(np.linspace(0, layers, min(layers, 12) + 1).astype(int))
            spread = cosine_SxL.std(0, ddof=1) if n_seeds > 1 else np.zeros(layers + 1)
            label = rf"$\alpha_{{SA}}={alpha:g}$"
            mean = cosine_SxL.mean(0)
            axis.errorbar(shown, mean[shown], spread[shown], color=colour, label=label, **DOT)
        axis.set(xlabel="layer", title=rf"{layers} layers, $\beta={beta:g}$", ylim=(-0.03, 1.03))
        axis.plot([], [], color="0.4", label=f"exact theory, $T={length}$")
        axis.plot([], [], color="0.4", ls="--", label="paper's limit")
        axis.legend(fontsize=8)
    np.atleast_1d(axes)[0].set_ylabel(r"cosine of two tokens $\rho$")
    figure.suptitle(
        f"Networks ($d={width}$, {n_seeds} seeds) follow the exact theory: largest error "
        f"{worst['exact']:.3f}, of the limit {worst['limit']:.3f}",
        fontsize=11,
    )
    return Outcome(figure, arrays, metrics, baselines)


def tanh(
    sigma_ws: tuple,
    values: str,
    layers: int,
    length: int,
    width: int,
    beta: float,
    alpha_sa: float,
    alpha_mlp: float,
    sigma_b2: float,
    seed: int,
    n_seeds: int,
) -> Outcome:
    """Figure 5: with tanh a large variance keeps tokens apart at any depth: a stable cosine < 1."""
    plt = pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    rho = np.linspace(0, 1, 201)
    left.plot(rho, rho, color="0.6", lw=0.8)
    arrays, metrics, baselines, ends = {"rho": rho}, {}, {}, []
    for colour, sigma_w in zip(COLOURS, sigma_ws):
        sigma_v2 = sigma_w**2 if values == "equal" else 1.0
        block = Block(beta, alpha_sa, alpha_mlp, sigma_v2, sigma_w**2, sigma_b2, "tanh")
        update = np.asarray(block_map(rho, block, length))
        roots = fixed_points(block, length)
        star = float(roots.rho[roots.stable][0])
        cosine_SxL = _networks(block, layers, length, width, 1, seed, n_seeds)
        line = np.asarray(propagate(0.0, block, layers, length))
        name, label = f"sigma_w_{sigma_w:g}", rf"$\sigma_w={sigma_w:g}$, $\rho^*={star:.3f}$"
        left.plot(rho, update, color=colour, lw=1.8, label=label)
        left.plot([star], [star], "*", color=colour, ms=12)
        right.plot(np.arange(layers + 1), line, color=colour, lw=1.5, label=f"theory, {label}")
        shown = np.unique(np.linspace(0, layers, 13).astype(int))
        spread = cosine_SxL.std(0, ddof=1) if n_seeds > 1 else np.zeros(layers + 1)
        right.errorbar(shown, cosine_SxL.mean(0)[shown], spread[shown], color=colour, **DOT)
        metrics[f"fixed_point_{name}"] = exact(star)
        metrics[f"measured_{name}"] = over_seeds(cosine_SxL[:, -1])
        limit = fixed_points(block)
        baselines[f"limit_fixed_point_{name}"] = float(limit.rho[limit.stable][0])
        arrays |= {f"map_{name}": update, f"theory_{name}": line, f"measured_{name}": cosine_SxL}
        ends.append(f"{cosine_SxL[:, -1].mean():.3f}")
    left.set(xlabel=r"$\rho$ before a block", ylabel=r"$\rho$ after", xlim=(0, 1), ylim=(0, 1.01))
    right.set(xlabel="layer", ylabel=r"cosine of two tokens $\rho$", ylim=(-0.03, 1.03))
    left.legend(fontsize=8)
    right.legend(fontsize=8, loc="center right", bbox_to_anchor=(1, 0.75))
    variance = r"\sigma_w^2" if values == "equal" else "1"
    figure.suptitle(
        rf"tanh, $\sigma_V^2={variance}$: after {layers} layers networks ($d={width}$) have cosine "
        + " and ".join(ends)
    )
    return Outcome(figure, arrays, metrics, baselines)


def no_residual(
    betas: tuple,
    layers: int,
    length: int,
    width: int,
    sigma_b2: float,
    points: int,
    seed: int,
    n_seeds: int,
) -> Outcome:
    """Figure C.3: without residuals the limit collapses at once below sqrt(2); networks do not."""
    plt = pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    beta, sigma_w2 = jnp.linspace(0, 3, points), jnp.linspace(0.05, 2, points)
    grid = Block(beta[:, None], 0.0, 0.0, 1.0, sigma_w2[None], sigma_b2)
    first = np.asarray(block_map(0.0, grid, length))
    image = left.imshow(
        first.T,
        origin="lower",
        aspect="auto",
        extent=(0, 3, 0.05, 2),
        cmap="cividis",
        vmin=0,
        vmax=1,
    )
    left.axvline(2**0.5, color=COLOURS[1], lw=2, ls="--", label=r"$\beta_c(0)$: limit is 1 left")
    left.set(xlabel=r"score scale $\beta$", ylabel=r"$\sigma_w^2$")
    left.set_title(f"cosine after one block, from 0 (exact, $T={length}$)", fontsize=10)
    left.legend(fontsize=8, loc="upper left")
    figure.colorbar(image, ax=left)
    arrays = {"beta": beta, "sigma_w2": sigma_w2, "first_block": first}
    metrics, baselines, squares = {}, {}, {"exact": [], "limit": []}
    for colour, b in zip(COLOURS, betas):
        block = Block(b, 0.0, 0.0, 1.0, 1.0, sigma_b2)
        cosine_SxL = _networks(block, layers, length, width, 1, seed, n_seeds)
        for theory, style in (("exact", "-"), ("limit", "--")):
            line = np.asarray(propagate(0.0, block, layers, length, theory))
            right.plot(np.arange(layers + 1), line, color=colour, ls=style, lw=1.4)
            squares[theory].append((line - cosine_SxL.mean(0)) ** 2)
            arrays[f"{theory}_beta_{b:g}"] = line
        spread = cosine_SxL.std(0, ddof=1) if n_seeds > 1 else np.zeros(layers + 1)
        label = rf"$\beta={b:g}$"
        steps = np.arange(layers + 1)
        right.errorbar(steps, cosine_SxL.mean(0), spread, color=colour, label=label, **DOT)
        metrics[f"cosine_1_beta_{b:g}"] = over_seeds(cosine_SxL[:, 1])
        baselines[f"limit_cosine_1_beta_{b:g}"] = float(propagate(0.0, block, 1)[1])
        arrays[f"measured_beta_{b:g}"] = cosine_SxL
    rms = {name: float(np.sqrt(np.mean(x))) for name, x in squares.items()}
    metrics["exact_rms_error"], baselines["limit_rms_error"] = exact(rms["exact"]), rms["limit"]
    right.set(xlabel="layer", ylabel=r"cosine of two tokens $\rho$", ylim=(-0.03, 1.03))
    right.xaxis.get_major_locator().set_params(integer=True)
    right.set_title(
        rf"$\sigma_V^2=\sigma_w^2=1$: dots networks ($d={width}$), lines exact, dashed limit",
        fontsize=10,
    )
    right.legend(fontsize=8, loc="lower right")
    figure.suptitle(
        "Without residuals tokens soon agree at any $\\beta$; root mean square error: exact "
        f"{rms['exact']:.3f}, limit {rms['limit']:.3f}"
    )
    return Outcome(figure, arrays, metrics, baselines)


def _networks(
    block: Block, layers: int, length: int, width: int, heads: int, seed: int, n_seeds: int
) -> np.ndarray:
    """(seeds, layers + 1) mean cosines of random encoders; float32 networks are fast enough."""
    keys = jax.vmap(jax.random.key)(np.arange(seed, seed + n_seeds))
    signal = measure(keys, block, layers, length, width, heads, dtype=np.float32)
    return np.asarray(signal.cosine, float)
