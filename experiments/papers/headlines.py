"""The sentences of the demo: finished runs in, one finding with its number and error bar out."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxformer.records import Workdir

Runs = Mapping[str, Workdir]


def freezing(runs: Runs) -> str:
    """Which parts must learn to retrieve, and which to memorise."""
    guess = result(runs["retrieval, Frozen-QK"])["baselines"]["in_context_guess"]
    return (
        f"with random, frozen queries and keys a transformer retrieves "
        f"{percent(runs['retrieval, Frozen-QK'])} (Standard "
        f"{percent(runs['retrieval, Standard'])}), with fixed mixing "
        f"{percent(runs['retrieval, MixiT'])} (guessing a value of the context: "
        f"{100 * guess:.1f} %); to memorise random facts the mixing is enough: "
        f"{percent(runs['memorisation, MixiT'])} (Standard "
        f"{percent(runs['memorisation, Standard'])})"
    )


def stochastic_equation(runs: Runs) -> str:
    """The SDE's law beside that of networks."""
    workdir = runs["SDE and networks"]
    widths = result(workdir)["config"]["figure"]["widths"]
    width = sorted(widths)[len(widths) // 2]
    with np.load(workdir / "arrays.npz") as arrays:
        theory = arrays["sde/log_trace"][:, -1]
        networks = arrays[f"n={width}/log_trace"][:, -1]
        tau = arrays["times"][-1]
    metrics = result(workdir)["metrics"]
    names = [name for name in metrics if name.endswith(f"tau={tau:g}/n={width}")]
    worst = max(metrics[name]["mean"] for name in names)
    return (
        f"the covariance of random mixing networks of width {width} follows the SDE: at "
        f"depth = {tau:g} width the mean log-trace is {_mean(networks)}, in theory "
        f"{_mean(theory)}; their laws differ by at most {worst:.3f} (noise of the samples: "
        f"{metrics['ks_noise']['mean']:.3f})"
    )


def trainability(runs: Runs) -> str:
    """How many measured networks lie on the side of the diagram that theory says."""
    workdir = runs["trainability diagram"]
    figure = result(workdir)["config"]["figure"]
    with np.load(workdir / "arrays.npz") as arrays:
        measured_BxAxS = arrays["measured"]
        betas, alphas = arrays["measured_beta"], arrays["measured_alpha"]
        edge_B = np.interp(betas, arrays["beta"], arrays["critical_alpha"])
    cosine_BxA = measured_BxAxS.mean(-1)
    agree_BxA = (cosine_BxA > 1 - figure["epsilon"]) == (alphas[None] < edge_B[:, None])
    low, high = (_mean(measured_BxAxS[0, i]) for i in (0, -1))
    return (
        f"after {figure['layers']} layers two tokens have cosine {low} with residual strength "
        f"{alphas[0]:g} and {high} with {alphas[-1]:g}, on either side of the predicted "
        f"alpha_c = {edge_B[0]:.2f}; {agree_BxA.sum()} of {agree_BxA.size} dots lie on the side "
        "that the theory predicts"
    )


def order_parameter(runs: Runs) -> str:
    """What the sampled order parameter says of two paths."""
    workdir = runs["collapsed posterior"]
    held = result(workdir)
    good_denoising = held["metrics"]["U/good,denoising"]
    with np.load(workdir / "arrays.npz") as arrays:
        saddle = arrays["U_theory"][0, 2]  # the order of paths is good, a1, denoising, a2
    return (
        f"a Bayesian transformer of width {held['config']['posterior']['width'][0]} subtracts the "
        f"denoising path from the good one: their order parameter is {_say(good_denoising)} "
        f"(saddle point {saddle:.2f}), and it classifies {percent(workdir)} of new sequences "
        f"(Gaussian-process limit {100 * held['baselines']['accuracy_gp_limit']:.1f} %)"
    )


def noise(runs: Runs) -> str:
    """What is left when the last feed-forward layer is cut out."""
    metrics = result(runs["noisy recall"])["metrics"]
    say = {name: _say(value, digits=3) for name, value in metrics.items()}
    return (
        f"the last feed-forward layer holds the noise: without it the right token goes from "
        f"{say['p_correct']} to {say['p_correct_without_f2']}, the noise from {say['p_noise']} to "
        f"{say['p_noise_without_f2']}"
    )


def result(workdir: Workdir) -> dict[str, Any]:
    return workdir.read("result.json")


def percent(workdir: Workdir) -> str:
    """ "99.6 ± 0.1 %" of a run's accuracy."""
    value = result(workdir)["metrics"]["accuracy"]
    return f"{100 * value['mean']:.1f} ± {100 * (value['sem'] or 0.0):.1f} %"


def _say(value: Mapping[str, Any], digits: int = 2) -> str:
    error = "" if value["sem"] is None else f" ± {value['sem']:.{digits}f}"
    return f"{value['mean']:.{digits}f}{error}"


def _mean(values: np.ndarray) -> str:
    error = values.std(ddof=1) / len(values) ** 0.5
    return f"{values.mean():.3f} ± {error:.3f}"
