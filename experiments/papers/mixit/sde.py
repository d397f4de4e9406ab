"""The covariance SDE (Theorem 2.1 of the MixiT paper) beside finite networks.

Phi = h^T h / n of m tokens, n the width, tau = depth/n. Random networks; nothing is trained.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.shared import plots
from experiments.shared.outcome import Outcome, exact
from jaxformer.training.metrics import Mean, over_seeds
from theory import covariance_sde as cs

BLUE, ORANGE, GREEN = plots.COLOURS[:3]
CHUNK = 100_000  # samples at once


def one_step(
    lengths: Sequence[int], width: int, samples: int, causal_too: bool, seed: int
) -> Outcome:
    """The mean and the covariance of Phi after one layer against their exact formulas."""
    rows = []
    for m in lengths:
        for causal in (False, True) if causal_too else (False,):
            rows.append((m, causal, _moments(m, width, samples, causal, seed)))
    metrics: dict[str, Mean] = {}
    for m, causal, found in rows:
        name = f"m={m}" + (",causal" if causal else "")
        metrics[f"drift_z/{name}"] = exact(np.abs(found["drift_z"]).max())
        metrics[f"covariance_z_rms/{name}"] = exact(np.sqrt((found["z"] ** 2).mean()))
        metrics[f"covariance_error/{name}"] = exact(found["error"])
        metrics[f"covariance_error_leading_order/{name}"] = exact(found["error_leading"])
        metrics[f"covariance_noise/{name}"] = exact(found["noise"])
    figure = _one_step_figure(rows, metrics, width)
    arrays = {
        f"{key}/m={m}{',causal' * causal}": value
        for m, causal, found in rows
        for key, value in found.items()
    }
    return Outcome(figure, arrays, metrics)


def _moments(m: int, width: int, samples: int, causal: bool, seed: int) -> dict[str, Any]:
    """One layer's drift and covariance, measured and predicted, with standard errors."""
    x = np.random.default_rng(seed).normal(size=(m, m + 2))
    phi = jnp.asarray(x @ x.T / (m + 2))
    upper = np.triu_indices(m)
    centre = np.asarray(cs.one_step_mean(phi, width, causal=causal))[upper]
    p = len(centre)
    first, second, fourth, done = np.zeros(p), np.zeros((p, p)), np.zeros((p, p)), 0
    while done < samples:
        n = min(CHUNK, samples - done)
        key = jax.random.fold_in(jax.random.key(seed), done)
        x = np.asarray(cs.measure(key, phi, width, 1, n, causal=causal))[:, *upper] - centre
        first, second, fourth = first + x.sum(0), second + x.T @ x, fourth + (x**2).T @ (x**2)
        done += n
    mean, cov = first / samples, second / samples
    error = np.sqrt((fourth / samples - cov**2) / samples)
    predicted = np.asarray(cs.one_step_covariance(phi, width, causal=causal))
    leading = np.asarray(cs.covariance(phi, causal=causal)) / width
    rows = np.triu_indices(p)
    norm = np.linalg.norm
    diagonal = upper[0] == upper[1]
    drift = np.diagonal(np.asarray(cs.drift(phi, causal=causal)))
    drift_error = width * np.sqrt(np.diag(cov) / samples)
    return {
        "drift": drift,
        "drift_measured": drift + width * mean[diagonal],
        "drift_error": drift_error[diagonal],
        "drift_z": width * mean / drift_error,
        "covariance": width * predicted[rows],
        "covariance_measured": width * cov[rows],
        "z": ((cov - predicted) / error)[rows],
        "noise": norm(error) / norm(predicted),
        "error": norm(cov - predicted) / norm(predicted),
        "error_leading": norm(cov - leading) / norm(leading),
    }


def _one_step_figure(rows, metrics, width):
    plt = plots.pyplot()
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    bins = np.linspace(-4, 4, 33)
    for i, (m, causal, found) in enumerate(rows):
        colour, label = plots.COLOURS[i % 7], f"m = {m}" + (", causal" if causal else "")
        tokens = np.arange(1, m + 1)
        left.errorbar(
            tokens, found["drift_measured"], 2 * found["drift_error"], fmt="o", ms=4, capsize=2,
            color=colour, label=label,
        )  # fmt: skip
        left.plot(tokens, found["drift"], color=colour, lw=1)
        middle.plot(found["covariance"], found["covariance_measured"], ".", color=colour, ms=4)
        right.hist(found["z"], bins, density=True, histtype="step", color=colour)
    low = min(found["covariance"].min() for _, _, found in rows)
    high = max(found["covariance"].max() for _, _, found in rows)
    middle.plot([low, high], [low, high], color="0.4", lw=1)
    right.plot(bins, np.exp(-(bins**2) / 2) / np.sqrt(2 * np.pi), color="black", label="N(0, 1)")
    left.set(xlabel="token", ylabel=r"$n\,(E[\Phi']-\Phi)^{aa}$", title="drift: lines predicted")
    middle.set(xlabel="exact formula", ylabel="measured", title=r"entries of $n$ Cov$(\Phi')$")
    right.set(xlabel="z of a covariance entry", ylabel="density", title="deviation over its error")
    left.legend(fontsize=7)
    right.legend(fontsize=7)
    z = max(v.mean for name, v in metrics.items() if name.startswith("drift_z"))
    rms = [v.mean for name, v in metrics.items() if name.startswith("covariance_z")]
    figure.suptitle(
        f"One layer of width {width} has the predicted mean (largest |z| {z:.1f}) and covariance "
        f"(rms z {min(rms):.2f} to {max(rms):.2f}, noise would give 1)",
        fontsize=10,
    )
    return figure


def printed_variance(length: int, width: int, layers: int, samples: int, seed: int) -> Outcome:
    """log Tr(Phi)/m by layer with mixing variance 1/(nm) and with the printed 1/sqrt(nm)."""
    phi, at = _start(length), np.unique(np.linspace(0, layers, 17).astype(int))
    std = {"1/(nm)": (width * length) ** -0.5, "1/sqrt(nm)": (width * length) ** -0.25}
    keys = jax.random.split(jax.random.key(seed), 2)
    curves = {
        name: np.asarray(
            cs.log_trace(
                cs.measure(key, phi, width, layers, samples, at.tolist(), mixing_scale=value)
            )
        )
        for key, (name, value) in zip(keys, std.items(), strict=True)
    }
    paths = cs.predict(
        jax.random.fold_in(keys[0], 1), phi, layers / width, samples, 2 * layers, at / width
    )
    sde = np.asarray(cs.log_trace(paths)).mean(0)
    stops = (layers // 4, layers)
    metrics = {
        f"log_trace/{name}/layer={at[np.abs(at - l).argmin()]}": over_seeds(
            curve[:, np.abs(at - l).argmin()]
        )
        for name, curve in curves.items()
        for l in stops
    }
    plt = plots.pyplot()
    figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
    for colour, (name, curve) in zip((BLUE, ORANGE), curves.items(), strict=True):
        axis.plot(at, curve.mean(0), "o-", ms=3, color=colour, label=f"networks, variance {name}")
        axis.fill_between(at, *np.quantile(curve, (0.05, 0.95), axis=0), color=colour, alpha=0.2)
    axis.plot(at, sde, "k--", lw=1, label="SDE")
    axis.set(xlabel="layer", ylabel=r"log Tr$(\Phi)/m$")
    axis.legend(fontsize=8)
    good, printed = (curve[:, -1].mean() for curve in curves.values())
    axis.set_title(
        f"The printed variance 1/sqrt(nm) blows up: after {layers} layers log Tr/m is "
        f"{printed:.1f},\nagainst {good:.2f} with 1/(nm) (m = {length}, n = {width})",
        fontsize=10,
    )
    arrays = {"layers": at, "sde": sde} | {
        key: curves[name] for key, name in (("theory", "1/(nm)"), ("printed", "1/sqrt(nm)"))
    }
    return Outcome(figure, arrays, metrics)


def causal(
    length: int, width: int, tau: float, paths: int, samples: int, steps: int, seed: int
) -> Outcome:
    """Mean correlations of all pairs of tokens under causal mixing: SDE, networks, difference."""
    phi, keys = _start(length), jax.random.split(jax.random.key(seed), 2)
    depth = round(tau * width)
    solved = cs.predict(keys[0], phi, depth / width, paths, steps, causal=True)
    networks = cs.measure(keys[1], phi, width, depth, samples, causal=True)
    (sde, sde_error), (net, net_error) = (_mean_correlation(x) for x in (solved, networks))
    z = (net - sde) / np.sqrt(sde_error**2 + net_error**2 + np.eye(length))
    pairs = np.triu_indices(length, 1)
    by_place = {"first": sde[0, 1], "last": sde[-2, -1]}
    metrics = {f"correlation/{name}_neighbours": exact(v) for name, v in by_place.items()}
    metrics |= {
        "correlation/mean": exact(sde[pairs].mean()),
        "correlation/mean_networks": exact(net[pairs].mean()),
        "z_rms": exact(np.sqrt((z[pairs] ** 2).mean())),
    }
    plt = plots.pyplot()
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.9), layout="constrained")
    tokens, off = np.arange(1, length + 1), ~np.eye(length, dtype=bool)
    low, high = min(sde[off].min(), net[off].min()), max(sde[off].max(), net[off].max())
    for axis, values, title in ((axes[0], sde, "SDE"), (axes[1], net, f"networks, n = {width}")):
        shown = np.where(off, values, np.nan)
        image = axis.imshow(shown, vmin=low, vmax=high, cmap="viridis", extent=_extent(length))
        axis.set(title=title, xlabel="token b", ylabel="token a")
    figure.colorbar(image, ax=axes[:2], label=r"mean $\rho_{ab}$")
    drift = np.diagonal(np.asarray(cs.drift(phi, causal=True)))
    axes[2].plot(tokens, drift, "o-", color=BLUE, ms=4, label="drift at tau = 0")
    neighbours = [np.diagonal(x, 1) for x in (sde, net)]
    axes[2].plot(tokens[1:], neighbours[0], color=ORANGE, label=r"mean $\rho_{a-1,a}$, SDE")
    axes[2].plot(tokens[1:], neighbours[1], "o", color=ORANGE, ms=4, label="networks")
    axes[2].set(xlabel="token", title=f"SDE and networks differ by {metrics['z_rms'].mean:.1f} se")
    axes[2].legend(fontsize=7)
    figure.suptitle(
        f"Causal mixing spares the first tokens: at tau = {tau:g} the first pair keeps a mean "
        f"correlation {by_place['first']:.2f}, the last has {by_place['last']:.2f} (start 0.50)",
        fontsize=10,
    )
    arrays = {"sde": sde, "sde_error": sde_error, "networks": net, "networks_error": net_error}
    return Outcome(figure, arrays | {"drift": drift}, metrics)


def _mean_correlation(phi) -> tuple[np.ndarray, np.ndarray]:
    phi = np.asarray(phi)
    scale = np.sqrt(np.diagonal(phi, axis1=1, axis2=2))
    rho = phi / (scale[:, :, None] * scale[:, None, :])
    return rho.mean(0), rho.std(0) / len(rho) ** 0.5


def _start(m: int) -> jax.Array:
    return 0.5 * jnp.eye(m) + 0.5


def _extent(m: int) -> tuple[float, float, float, float]:
    return (0.5, m + 0.5, m + 0.5, 0.5)
