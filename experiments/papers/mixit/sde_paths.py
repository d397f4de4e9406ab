"""Trajectories and distributions of the covariance SDE beside networks of several widths."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.shared import plots
from experiments.shared.outcome import Outcome, exact
from jaxformer.errors import UserError
from jaxformer.training.metrics import Mean
from theory import covariance_sde as cs

QUANTITIES = {
    "log_trace": r"log Tr$(\Phi)/m$",
    "correlation": r"$\rho_{12}$",
    "log_eigenvalue_1": r"log $\lambda_1$",
    "log_eigenvalue_2": r"log $\lambda_2$",
}
SHOWN = 6  # sample paths


def paths(
    length: int,
    widths: Sequence[int],
    times: Sequence[float],
    paths: int,
    steps: int,
    samples: int,
    seed: int,
) -> Outcome:
    """log-trace, correlation and eigenvalues: the SDE's law against that of networks.

    A width n has whole layers only, so it is compared with the SDE at round(tau n)/n.
    """
    if not times or not widths or any(late <= early for early, late in pairwise(times)):
        raise UserError(
            "figure.widths must name one at least and figure.times increase, got "
            f"{tuple(widths)} and {tuple(times)}."
        )
    phi = 0.5 * jnp.eye(length) + 0.5
    layers = {n: [round(tau * n) for tau in times] for n in widths}
    stops = sorted({l / n for n, ls in layers.items() for l in ls} | set(times))
    keys = jax.random.split(jax.random.key(seed), len(widths) + 3)
    solved = quantities(cs.predict(keys[0], phi, stops[-1], paths, steps, stops))
    networks = {
        n: quantities(cs.measure(key, phi, n, ls[-1], samples, ls))
        for key, (n, ls) in zip(keys[3:], layers.items(), strict=True)
    }
    metrics: dict[str, Mean] = {}
    for n, found in networks.items():
        for name in QUANTITIES:
            for i, tau in enumerate(times):
                theory = solved[name][:, stops.index(layers[n][i] / n)]
                metrics[f"ks/{name}/tau={tau:g}/n={n}"] = exact(ks(theory, found[name][:, i]))
    # Two samples of one law are farther apart than this in 1 % of the cases.
    noise = 1.63 * (1 / paths + 1 / samples) ** 0.5
    metrics["ks_noise"] = exact(noise)

    widest = max(widths)
    grid = np.linspace(0, times[-1], 41)
    bundle = min(paths, samples, 1000)
    path_layers = np.unique(np.round(grid * widest).astype(int))
    trajectories = {
        "SDE": (grid, quantities(cs.predict(keys[1], phi, grid[-1], bundle, steps, grid))),
        f"networks, n = {widest}": (
            path_layers / widest,
            quantities(
                cs.measure(keys[2], phi, widest, path_layers[-1], bundle, path_layers.tolist())
            ),
        ),
    }
    at = [stops.index(tau) for tau in times]
    law = {name: values[:, at] for name, values in solved.items()}
    figure = _figure(trajectories, law, networks, times, metrics, noise)
    arrays = {f"sde/{name}": values for name, values in law.items()}
    arrays |= {f"n={n}/{name}": values for n, f in networks.items() for name, values in f.items()}
    return Outcome(figure, arrays | {"times": times}, metrics)


def quantities(phi) -> dict[str, np.ndarray]:
    """{name: (paths, times)} of Phi (paths, times, m, m)."""
    eigenvalues = np.linalg.eigvalsh(np.asarray(phi))
    return {
        "log_trace": np.asarray(cs.log_trace(phi)),
        "correlation": np.asarray(cs.correlation(phi)),
        # Far below the largest one an eigenvalue is rounding.
        "log_eigenvalue_1": np.log(eigenvalues[..., -1]),
        "log_eigenvalue_2": np.log(np.maximum(eigenvalues[..., -2], 1e-14 * eigenvalues[..., -1])),
    }


def ks(x: np.ndarray, y: np.ndarray) -> float:
    """The Kolmogorov-Smirnov distance of two samples."""
    from scipy.stats import ks_2samp

    found: Any = ks_2samp(x, y)
    return float(found.statistic)


def _figure(trajectories, law, networks, times, metrics, noise):
    plt = plots.pyplot()
    figure, axes = plt.subplots(
        1 + len(times), len(QUANTITIES), figsize=(12, 2.5 * (1 + len(times))), layout="constrained"
    )
    for column, (name, label) in enumerate(QUANTITIES.items()):
        top = axes[0, column]
        for colour, (who, (grid, found)) in zip(plots.COLOURS, trajectories.items()):
            values = found[name]
            low, middle, high = np.quantile(values, (0.05, 0.5, 0.95), axis=0)
            top.fill_between(grid, low, high, color=colour, alpha=0.15, lw=0)
            top.plot(grid, middle, color=colour, lw=2, label=who)
            top.plot(grid, values[:SHOWN].T, color=colour, lw=0.6, alpha=0.7)
        top.set(title=label, xlabel=r"$\tau$ = depth/width")
        for row, tau in enumerate(times):
            axis, theory = axes[1 + row, column], law[name][:, row]
            low, high = np.quantile(theory, (0.001, 0.999))
            bins = np.linspace(low, high, 51)
            axis.hist(theory, bins, density=True, color="0.8", label="SDE")
            for colour, (n, found) in zip(plots.COLOURS[1:], networks.items()):
                distance = metrics[f"ks/{name}/tau={tau:g}/n={n}"].mean
                axis.hist(
                    found[name][:, row], bins, density=True, histtype="step", color=colour,
                    label=f"n = {n}: KS {distance:.3f}",
                )  # fmt: skip
            axis.legend(fontsize=6)
            axis.set(yticks=[])
            if column == 0:
                axis.set_ylabel(rf"density at $\tau$ = {tau:g}")
    axes[0, 0].legend(fontsize=7)
    widest = max(networks)
    largest = max(v.mean for k, v in metrics.items() if k.endswith(f"n={widest}"))
    verdict = "is within the noise of" if largest < noise else "exceeds the noise of"
    figure.suptitle(
        f"Networks of width {widest} follow the SDE: the largest KS distance, {largest:.3f}, "
        f"{verdict} two samples of one law ({noise:.3f}). Bands: 5 to 95 %",
        fontsize=10,
    )
    return figure
