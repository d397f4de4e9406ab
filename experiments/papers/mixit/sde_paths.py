"""Paths and distributions of the covariance SDE, compared with networks of several widths.

The SDE describes Phi, the (m, m) covariance matrix of m tokens, against tau = depth / width.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.papers import plots
from experiments.papers.outcome import Figure, Outcome, exact
from jaxformer.core.errors import UserError
from theory import covariance_sde as cs

QUANTITIES = {
    "log_trace": r"size: log Tr$(\Phi)/m$",
    "correlation": r"correlation $\rho_{12}$",
    "log_eigenvalue_1": r"eigenvalue: log $\lambda_1$",
    "log_eigenvalue_2": r"the next: log $\lambda_2$",
}
SHOWN_PATHS = 6


def measure_paths(
    length: int,
    widths: Sequence[int],
    times: Sequence[float],
    paths: int,
    steps: int,
    samples: int,
    seed: int,
) -> Outcome:
    """Compares the distributions of log-trace, correlation and eigenvalues: SDE and networks.

    The number of layers is whole, so networks of width n are compared at tau = round(tau n)/n.

    Args:
      length: The number of tokens m. They start with a correlation of .5.
      widths: Widths n of the networks.
      times: Increasing values of tau.
      paths: Paths of the SDE.
      steps: Steps of a path.
      samples: Networks of each width.
      seed: The seed of paths and networks.
    """
    if not times or not widths or any(late <= early for early, late in pairwise(times)):
        raise UserError(
            "figure.widths must have at least one width and figure.times must increase, got "
            f"{tuple(widths)} and {tuple(times)}."
        )
    phi = 0.5 * jnp.eye(length) + 0.5
    layers = {n: [round(tau * n) for tau in times] for n in widths}
    network_times = {l / n for n, depths in layers.items() for l in depths}
    stops = sorted(network_times | set(times))
    keys = jax.random.split(jax.random.key(seed), len(widths) + 3)
    solved = quantities(cs.predict(keys[0], phi, stops[-1], paths, steps, stops))
    # Two samples of one distribution are farther apart than `ks_noise` in 1 % of the cases.
    noise = 1.63 * (1 / paths + 1 / samples) ** 0.5
    arrays: dict[str, Any] = {"ks_noise": noise}
    metrics = {"ks_noise": exact(noise)}
    for key, (n, depths) in zip(keys[3:], layers.items(), strict=True):
        measured = quantities(cs.measure(key, phi, n, depths[-1], samples, depths))
        for name, values in measured.items():
            theory = [solved[name][:, stops.index(l / n)] for l in depths]
            distances = [ks(theory[i], values[:, i]) for i in range(len(times))]
            for tau, distance in zip(times, distances, strict=True):
                metrics[f"ks/{name}/tau={tau:g}/n={n}"] = exact(distance)
            arrays |= {f"n={n}/{name}": values, f"n={n}/ks/{name}": distances}
    columns = [stops.index(tau) for tau in times]
    arrays |= {f"sde/{name}": values[:, columns] for name, values in solved.items()}

    widest, n_walks = max(widths), min(paths, samples, 1000)
    grid = np.linspace(0, times[-1], 41)
    depths = np.unique(np.round(grid * widest).astype(int))
    networks = cs.measure(keys[2], phi, widest, depths[-1], n_walks, depths.tolist())
    walks = {
        "sde": (grid, cs.predict(keys[1], phi, grid[-1], n_walks, steps, grid)),
        "networks": (depths / widest, networks),
    }
    for source, (taus, phis) in walks.items():
        arrays[f"walk/{source}/times"] = taus
        for name, values in quantities(phis).items():
            arrays[f"walk/{source}/band/{name}"] = np.quantile(values, (0.05, 0.5, 0.95), axis=0)
            arrays[f"walk/{source}/some/{name}"] = values[:SHOWN_PATHS]
    return Outcome(arrays | {"times": times}, metrics)


def quantities(phi) -> dict[str, np.ndarray]:
    """Returns the arrays (paths, times) of each quantity of Phi (paths, times, m, m)."""
    eigenvalues = np.linalg.eigvalsh(np.asarray(phi))
    return {
        "log_trace": np.asarray(cs.log_trace(phi)),
        "correlation": np.asarray(cs.correlation(phi)),
        # An eigenvalue far below the largest one is a rounding error.
        "log_eigenvalue_1": np.log(eigenvalues[..., -1]),
        "log_eigenvalue_2": np.log(np.maximum(eigenvalues[..., -2], 1e-14 * eigenvalues[..., -1])),
    }


def ks(x: np.ndarray, y: np.ndarray) -> float:
    """Returns the Kolmogorov-Smirnov distance of two samples.

    scipy.stats has it too, but takes seconds to import.
    """
    points = np.concatenate([x, y])
    # The empirical distribution functions of both samples at all points.
    cdf_x, cdf_y = (np.searchsorted(np.sort(z), points, "right") / len(z) for z in (x, y))
    return float(np.abs(cdf_x - cdf_y).max())


def draw_paths(arrays, widths: Sequence[int], times: Sequence[float]):
    figure, axes = plots.grid(2, len(QUANTITIES), (plots.PAGE, 3.2), sharex=False)
    for column, (name, label) in zip(axes.T, QUANTITIES.items(), strict=True):
        _walks(column[0], arrays, name, f"networks, n = {max(widths)}")
        column[0].set(title=label, xlabel=r"$\tau$ = depth / width")
        theory = arrays[f"sde/{name}"][:, -1]
        low, high = np.quantile(theory, (0.001, 0.999))
        bins = np.linspace(low, high, 41)
        column[1].hist(theory, bins, density=True, color="0.8", label="SDE")
        # The widest networks have the same colour in both rows.
        for colour, n in zip(plots.COLOURS[1:], sorted(widths, reverse=True)):
            style = {"histtype": "step", "color": colour, "label": f"networks, n = {n}"}
            column[1].hist(arrays[f"n={n}/{name}"][:, -1], bins, density=True, **style)
        distances = [f"{arrays[f'n={n}/ks/{name}'][-1]:.3f}" for n in widths]
        column[1].set(yticks=[], xlabel=label, title=f"KS {', '.join(distances)}")
    axes[0, 0].set_ylabel("along paths")
    axes[1, 0].set_ylabel(rf"density at $\tau$ = {times[-1]:g}")
    largest = max(arrays[f"n={max(widths)}/ks/{name}"].max() for name in QUANTITIES)
    comparison = (
        "is within the noise of" if largest < arrays["ks_noise"] else "exceeds the noise of"
    )
    plots.add_finding(
        figure,
        f"Networks of width {max(widths)} follow the SDE: the largest KS distance, {largest:.3f}, "
        f"{comparison} two samples of one distribution ({arrays['ks_noise']:.3f})",
        f"Above: median, the band from 5 to 95 %, and {SHOWN_PATHS} paths each of the SDE (blue) "
        f"and of networks (orange). Below: Kolmogorov-Smirnov distances in the order n = "
        f"{', '.join(map(str, widths))}. The title has the largest of all quantities at "
        rf"$\tau$ = {', '.join(f'{tau:g}' for tau in times)}.",
        axes[1, 0],
    )
    return figure


def _walks(axis, arrays, name: str, networks_label: str) -> None:
    """Draws some paths of the SDE and of networks, with their median and their 5 to 95 % band."""
    for colour, source, label in zip(plots.COLOURS, ("sde", "networks"), ("SDE", networks_label)):
        taus = arrays[f"walk/{source}/times"]
        low, middle, high = arrays[f"walk/{source}/band/{name}"]
        plots.band(axis, taus, low, middle, high, colour, label)
        axis.plot(taus, arrays[f"walk/{source}/some/{name}"].T, color=colour, lw=0.4, alpha=0.7)


PATHS = Figure(measure=measure_paths, draw=draw_paths)
