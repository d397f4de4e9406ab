"""The covariance SDE (Theorem 2.1 of the MixiT paper) compared with finite random networks.

Phi = h^T h / n is the covariance of m tokens, n is the width, tau = depth/n. Nothing is trained.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.papers import plots
from experiments.papers.outcome import Figure, Outcome, exact
from jaxformer.training.metrics import Mean, over_seeds
from theory import covariance_sde as cs

BLUE, ORANGE = plots.COLOURS[:2]
CHUNK_SAMPLES = 100_000  # samples in memory at once


def measure_one_step(
    lengths: Sequence[int], width: int, samples: int, causal_too: bool, seed: int
) -> Outcome:
    """Compares the mean and the covariance of Phi after one layer with their exact formulas."""
    outcome = Outcome()
    for name, m, causal in _cases(lengths, causal_too):
        moments = _moments(m, width, samples, causal, seed)
        numbers = {
            "drift_z": np.abs(moments["drift_z"]).max(),
            "covariance_z_rms": np.sqrt((moments["z"] ** 2).mean()),
            "covariance_error": moments["error"],
            "covariance_error_leading_order": moments["error_leading"],
            "covariance_noise": moments["noise"],
        }
        outcome.metrics |= {f"{key}/{name}": exact(value) for key, value in numbers.items()}
        gap = Mean(float(moments["gap"]), float(moments["gap_error"]), samples)
        outcome.metrics[f"drift_gap/{name}"] = gap
        outcome.arrays |= {f"{key}/{name}": value for key, value in moments.items()}
    return outcome


def _cases(lengths: Sequence[int], causal_too: bool) -> list[tuple[str, int, bool]]:
    """Returns (name, m, causal) of each measurement."""
    kinds = (False, True) if causal_too else (False,)
    return [(f"m={m}{',causal' * causal}", m, causal) for m in lengths for causal in kinds]


def _moments(m: int, width: int, samples: int, causal: bool, seed: int) -> dict[str, Any]:
    """Returns one layer's drift and covariance, measured and predicted, with standard errors."""
    x = np.random.default_rng(seed).normal(size=(m, m + 2))
    phi = jnp.asarray(x @ x.T / (m + 2))
    upper = np.triu_indices(m)
    centre = np.asarray(cs.one_step_mean(phi, width, cs.Mixing(causal)))[upper]
    p = len(centre)
    first, second, fourth = np.zeros(p), np.zeros((p, p)), np.zeros((p, p))
    for start in range(0, samples, CHUNK_SAMPLES):
        n = min(CHUNK_SAMPLES, samples - start)
        key = jax.random.fold_in(jax.random.key(seed), start)
        phis = cs.measure(key, phi, width, 1, n, mixing=cs.Mixing(causal))
        deviation = np.asarray(phis)[:, *upper] - centre
        first += deviation.sum(0)
        second += deviation.T @ deviation
        fourth += (deviation**2).T @ deviation**2
    mean, cov = first / samples, second / samples
    error = np.sqrt((fourth / samples - cov**2) / samples)
    predicted = np.asarray(cs.one_step_covariance(phi, width, cs.Mixing(causal)))
    leading = np.asarray(cs.covariance(phi, cs.Mixing(causal))) / width
    entries = np.triu_indices(p)
    norm = np.linalg.norm
    diagonal = upper[0] == upper[1]
    drift = np.diagonal(np.asarray(cs.drift(phi, cs.Mixing(causal))))
    drift_error = width * np.sqrt(np.diag(cov) / samples)
    return {
        "drift": drift,
        "drift_measured": drift + width * mean[diagonal],
        "drift_error": drift_error[diagonal],
        "drift_z": width * mean / drift_error,
        # The largest gap of the drift, which is zero off the diagonal, over its largest entry.
        "gap": width * np.abs(mean).max() / np.abs(drift).max(),
        "gap_error": drift_error.max() / np.abs(drift).max(),
        "covariance": width * predicted[entries],
        "covariance_measured": width * cov[entries],
        "z": ((cov - predicted) / error)[entries],
        "noise": norm(error) / norm(predicted),
        "error": norm(cov - predicted) / norm(predicted),
        "error_leading": norm(cov - leading) / norm(leading),
    }


def draw_one_step(arrays, lengths: Sequence[int], width: int, causal_too: bool):
    figure, (left, middle, right) = plots.row(3, (plots.PAGE, 2.0))
    bins = np.linspace(-4, 4, 33)
    low, high, largest_z, rms_z = np.inf, -np.inf, [], []
    for i, (name, m, _) in enumerate(_cases(lengths, causal_too)):
        drift, covariance, z, drift_z = (
            arrays[f"{key}/{name}"] for key in ("drift", "covariance", "z", "drift_z")
        )
        look = {"color": plots.COLOURS[i % 7]}
        tokens, label = np.arange(1, m + 1), name.replace("=", " = ").replace(",", ", ")
        measured, error = arrays[f"drift_measured/{name}"], 2 * arrays[f"drift_error/{name}"]
        left.errorbar(tokens, measured, error, fmt="o", ms=3, capsize=2, label=label, **look)
        left.plot(tokens, drift, lw=1, **look)
        middle.plot(covariance, arrays[f"covariance_measured/{name}"], ".", ms=4, **look)
        right.hist(z, bins, density=True, histtype="step", **look)
        low, high = min(low, covariance.min()), max(high, covariance.max())
        largest_z.append(np.abs(drift_z).max())
        rms_z.append(np.sqrt((z**2).mean()))
    middle.plot([low, high], [low, high], color="0.4", lw=1)
    right.plot(bins, np.exp(-(bins**2) / 2) / np.sqrt(2 * np.pi), color="black", label="N(0, 1)")
    left.set(xlabel="token", ylabel=r"drift $n\,(E[\Phi']-\Phi)^{aa}$")
    middle.set(xlabel=r"$n$ Cov$(\Phi')$, exact formula", ylabel=r"$n$ Cov$(\Phi')$, measured")
    right.set(xlabel="deviation over its error, z", ylabel="density")
    plots.label_panel(right)
    plots.add_finding(
        figure,
        f"One layer of width {width} has the predicted mean (largest |z| {max(largest_z):.1f}) and "
        f"covariance (rms z {min(rms_z):.2f} to {max(rms_z):.2f}, noise would give 1)",
        "Left: dots measured with two standard errors, lines predicted. Middle and right: every "
        "entry of the covariance.",
        left,
    )
    return figure


def measure_printed_variance(
    length: int, width: int, layers: int, samples: int, seed: int
) -> Outcome:
    """Measures log Tr(Phi)/m by layer for two variances of the mixing.

    They are 1/(nm), which the theorem needs, and 1/sqrt(nm), which the paper prints.
    """
    phi, depths = _start(length), np.unique(np.linspace(0, layers, 17).astype(int))
    std = {"1/(nm)": (width * length) ** -0.5, "1/sqrt(nm)": (width * length) ** -0.25}
    keys = jax.random.split(jax.random.key(seed), 2)
    curves = {}
    for key, (name, value) in zip(keys, std.items(), strict=True):
        phis = cs.measure(key, phi, width, layers, samples, depths.tolist(), cs.Mixing(scale=value))
        curves[name] = np.asarray(cs.log_trace(phis))
    key = jax.random.fold_in(keys[0], 1)
    paths = cs.predict(key, phi, layers / width, samples, 2 * layers, depths / width)
    sde = np.asarray(cs.log_trace(paths)).mean(0)
    metrics = {}
    for name, curve in curves.items():
        for stop in (layers // 4, layers):
            near = np.abs(depths - stop).argmin()
            metrics[f"log_trace/{name}/layer={depths[near]}"] = over_seeds(curve[:, near])
    theory, printed = curves.values()
    return Outcome({"layers": depths, "sde": sde, "theory": theory, "printed": printed}, metrics)


def draw_printed_variance(arrays, length: int, width: int):
    figure, (axis,) = plots.row(1, (plots.COLUMN, 2.0))
    depths, theory, printed = (arrays[name] for name in ("layers", "theory", "printed"))
    for colour, name, curve in ((BLUE, "1/(nm)", theory), (ORANGE, "1/√(nm)", printed)):
        low, high = np.quantile(curve, (0.05, 0.95), axis=0)
        plots.band(axis, depths, low, curve.mean(0), high, colour, f"variance {name}")
    axis.plot(depths, arrays["sde"], "k--", lw=1, label="SDE")
    axis.set(xlabel="layer", ylabel=r"log Tr$(\Phi)/m$")
    plots.add_finding(
        figure,
        f"The printed variance 1/√(nm) blows up: after {depths[-1]} layers log Tr/m is "
        f"{printed[:, -1].mean():.1f}, against {theory[:, -1].mean():.2f} with 1/(nm)",
        f"m = {length} tokens, width n = {width}; bands: 5 to 95 % of {len(theory)} networks.",
        axis,
    )
    return figure


def measure_causal(
    length: int, width: int, tau: float, paths: int, samples: int, steps: int, seed: int
) -> Outcome:
    """Compares mean correlations of token pairs under causal mixing between SDE and networks."""
    phi, keys = _start(length), jax.random.split(jax.random.key(seed), 2)
    depth = round(tau * width)
    solved = cs.predict(keys[0], phi, depth / width, paths, steps, mixing=cs.Mixing(causal=True))
    networks = cs.measure(keys[1], phi, width, depth, samples, mixing=cs.Mixing(causal=True))
    (sde, sde_error), (net, net_error) = (_mean_correlation(x) for x in (solved, networks))
    # The identity avoids 0/0 on the diagonal, where correlations are 1 without error.
    z = (net - sde) / np.sqrt(sde_error**2 + net_error**2 + np.eye(length))
    pairs = np.triu_indices(length, 1)
    z_rms = np.sqrt((z[pairs] ** 2).mean())
    metrics = {
        "correlation/first_neighbours": exact(sde[0, 1]),
        "correlation/last_neighbours": exact(sde[-2, -1]),
        "correlation/mean": exact(sde[pairs].mean()),
        "correlation/mean_networks": exact(net[pairs].mean()),
        "z_rms": exact(z_rms),
    }
    arrays = {"sde": sde, "sde_error": sde_error, "networks": net, "networks_error": net_error}
    drift = np.diagonal(np.asarray(cs.drift(phi, cs.Mixing(causal=True))))
    return Outcome(arrays | {"drift": drift, "z_rms": z_rms}, metrics)


def draw_causal(arrays, length: int, width: int, tau: float):
    figure, axes = plots.row(3, (plots.PAGE, 2.0))
    sde, net = arrays["sde"], arrays["networks"]
    tokens, off = np.arange(1, length + 1), ~np.eye(length, dtype=bool)
    look = {"extent": (0.5, length + 0.5, length + 0.5, 0.5)}
    shown = np.stack([sde, net])[:, off]
    look |= {"vmin": shown.min(), "vmax": shown.max()}
    for axis, values, title in ((axes[0], sde, "SDE"), (axes[1], net, f"networks, n = {width}")):
        image = axis.imshow(np.where(off, values, np.nan), **look)
        axis.set(title=title, xlabel="token b", ylabel="token a")
    plots.add_colour_bar(
        figure, image, axes[:2], r"mean correlation $\rho_{ab}$", location="bottom"
    )
    last, neighbours = axes[2], [np.diagonal(x, 1) for x in (sde, net)]
    last.plot(tokens, arrays["drift"], "o-", color=BLUE, label=r"drift at $\tau = 0$")
    last.plot(tokens[1:], neighbours[0], color=ORANGE, label=r"mean $\rho_{a-1,a}$, SDE")
    last.plot(tokens[1:], neighbours[1], "o", color=ORANGE, label="networks")
    last.set(xlabel="token a", ylabel="drift, correlation")
    plots.label_panel(last, columns=1)
    plots.add_finding(
        figure,
        f"Causal mixing spares the first tokens: at $\\tau$ = {tau:g} the first pair keeps a mean "
        f"correlation {sde[0, 1]:.2f}, the last has {sde[-2, -1]:.2f} (start 0.50)",
        f"SDE and networks differ by {arrays['z_rms']:.1f} standard errors (root mean square).",
    )
    return figure


def _mean_correlation(phi) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mean over samples of all correlations, (m, m), and its standard error."""
    phi = np.asarray(phi)
    scale = np.sqrt(np.diagonal(phi, axis1=1, axis2=2))
    rho = phi / (scale[:, :, None] * scale[:, None, :])
    return rho.mean(0), rho.std(0) / len(rho) ** 0.5


def _start(m: int) -> jax.Array:
    """Returns Phi of m tokens with variance 1 and correlation .5."""
    return 0.5 * jnp.eye(m) + 0.5


CAUSAL = Figure(measure=measure_causal, draw=draw_causal)
ONE_STEP = Figure(measure=measure_one_step, draw=draw_one_step)
PRINTED_VARIANCE = Figure(measure=measure_printed_variance, draw=draw_printed_variance)
