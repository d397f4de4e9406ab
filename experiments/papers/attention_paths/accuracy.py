"""Attention paths on the hidden Markov task: accuracy and order parameter against width and noise.

Every function solves small convex-looking problems and samples low-dimensional posteriors; nothing
is trained. N is the width of every layer, P/N the load; the GP limit is N to infinity.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from experiments.papers.attention_paths import problem
from experiments.papers.attention_paths.posterior import heat
from experiments.shared import plots
from experiments.shared.outcome import Outcome, exact
from jaxformer.training.metrics import Mean, over_seeds
from theory import attention_paths
from theory.attention_paths.posterior import monte_carlo_error


def accuracy(
    task: dict[str, Any],
    widths: Sequence[int],
    sampled_widths: Sequence[int],
    temperature: float,
    draws: int,
    warmup: int,
    seed: int,
    n_seeds: int,
) -> Outcome:
    """Test accuracy against N: theory, exact posterior, GP limit and single paths."""
    names = problem.example(seed, **task).names
    alone = {"GP limit": names, names[0]: names[:1], f"{names[0]} + {names[2]}": names[::2]}
    alone |= {name: (name,) for name in names[1:]}
    fixed = {name: [] for name in alone}
    theory, sampled = np.zeros((2, n_seeds, len(widths))), np.zeros((n_seeds, len(sampled_widths)))
    for i in range(n_seeds):
        data = problem.example(seed + i, **task)
        for name, used in alone.items():
            fixed[name].append(data.accuracy_at(data.only(*used), temperature))
        for k, width in enumerate(widths):
            found = data.solve(width, temperature)
            theory[:, i, k] = data.accuracy_at(found.U, temperature), found.action
        for k, width in enumerate(sampled_widths):
            posterior = _sample(data, width, temperature, draws, warmup, seed + i)
            sampled[i, k] = data.accuracy(posterior.mean(data.attentioned_test))

    metrics = {f"accuracy/N={n}": over_seeds(theory[0, :, k]) for k, n in enumerate(widths)}
    metrics |= {
        f"accuracy_sampled/N={n}": over_seeds(sampled[:, k]) for k, n in enumerate(sampled_widths)
    }
    metrics |= {f"action/N={n}": over_seeds(theory[1, :, k]) for k, n in enumerate(widths)}
    single = {name: over_seeds(values) for name, values in fixed.items()}
    metrics |= {f"accuracy/{name}": value for name, value in single.items()}
    figure = _accuracy_figure(widths, theory[0], sampled_widths, sampled, single)
    arrays = {"widths": widths, "accuracy": theory[0], "action": theory[1]}
    arrays |= {"sampled_widths": sampled_widths, "accuracy_sampled": sampled}
    return Outcome(figure, arrays, metrics, {"chance": 0.5})


def _accuracy_figure(widths, theory, sampled_widths, sampled, single: dict[str, Mean]):
    plt = plots.pyplot()
    figure, axis = plt.subplots(figsize=(6.5, 4.2), layout="constrained")
    best = max(range(len(widths)), key=lambda k: theory[:, k].mean())
    for values, places, style, colour, label in (
        (theory, widths, "-", plots.COLOURS[0], "theory"),
        (sampled, sampled_widths, "o", plots.COLOURS[1], "exact posterior, sampled"),
    ):
        means = [over_seeds(values[:, k]) for k in range(len(places))]
        errors = [m.sem if len(values) > 1 else 0 for m in means]
        axis.errorbar(
            places, [m.mean for m in means], errors, fmt=style, color=colour, capsize=3, label=label
        )
    lowest = -1.0
    for name, value in sorted(single.items(), key=lambda item: item[1].mean):
        limit = name == "GP limit"
        axis.axhline(
            value.mean, color="black" if limit else "0.55", ls="--" if limit else ":", lw=1
        )
        lowest = max(value.mean, lowest + 0.018)  # labels beside the axis must not overlap
        text = name if limit else f"{name} alone"
        place = (1.01, lowest)
        axis.annotate(text, place, xycoords=("axes fraction", "data"), fontsize=8, va="center")
    axis.set(xscale="log", xlabel="width N", ylabel="test accuracy")
    axis.legend(fontsize=8, loc="center left")
    top, limit = theory[:, best].mean(), single["GP limit"].mean
    verb = "beats" if top > limit else "does not beat"
    axis.set_title(
        f"Finite width {verb} the GP limit: {100 * top:.1f} % at N = {widths[best]}, "
        f"{100 * limit:.1f} % at infinity",
        fontsize=10,
    )
    return figure


def order_parameter(
    task: dict[str, Any],
    widths: Sequence[int],
    temperature: float,
    draws: int,
    warmup: int,
    seed: int,
) -> Outcome:
    """Heat maps of U: theory, posterior mean (A), and (B), the Gram matrix of V_eff."""
    data = problem.example(seed, **task)
    names, arrays, metrics = data.names, {"widths": widths}, {}
    plt = plots.pyplot()
    figure, axes = plt.subplots(
        3, len(widths), figsize=(3.3 * len(widths), 9), layout="constrained", squeeze=False
    )
    upper = np.triu_indices(len(names))
    for column, width in zip(axes.T, widths):
        theory = data.solve(width, temperature)
        posterior = _sample(data, width, temperature, draws, warmup, seed)
        by_chain = posterior.U.reshape(2, -1, *posterior.U.shape[1:])
        errors = monte_carlo_error(by_chain[:, :, *upper])
        rows = {
            "theory": np.asarray(theory.U),
            "sampled": posterior.U.mean(0),
            "effective": posterior.gram_effective(),
        }
        for axis, (name, U), title in zip(
            column, rows.items(), ("theory: U", "sampled (A): E[U]", "sampled (B): V_eff V_eff'/n")
        ):
            heat(axis, U, names)
            axis.set_title(f"N = {width}, {title}", fontsize=9)
            arrays[f"{name}/N={width}"] = U
        for i, j, error in zip(*upper, errors):
            metrics[f"U/N={width}/{names[i]},{names[j]}"] = exact(float(theory.U[i, j]))
            mean = Mean(float(rows["sampled"][i, j]), float(error), len(posterior.U))
            metrics[f"E[U]/N={width}/{names[i]},{names[j]}"] = mean
        metrics[f"gradient_norm/N={width}"] = exact(float(theory.gradient_norm))
    narrow, wide = (np.asarray(arrays[f"theory/N={n}"]) for n in (min(widths), max(widths)))
    two = np.argsort(-np.diagonal(narrow))[:2]
    first, second = (names[i] for i in two)
    figure.suptitle(
        f"At N = {min(widths)} the network uses the paths {first} and {second}\n(U = "
        f"{narrow[two[0], two[0]]:.1f} and {narrow[two[1], two[1]]:.1f}) and combines them with "
        f"correlation {problem.correlation(narrow, *two):.2f};\nat N = {max(widths)} all paths "
        f"count about alike ({np.diagonal(wide).min():.2f} to {np.diagonal(wide).max():.2f})",
        fontsize=11,
    )
    return Outcome(figure, arrays, metrics)


def robustness(
    task: dict[str, Any],
    designs: Sequence[str],
    widths: Sequence[int],
    noises: Sequence[float],
    temperature: float,
    seed: int,
    n_seeds: int,
) -> Outcome:
    """Two paths: accuracy against the perpendicular noise, and the correlation that removes it."""
    lines = ("good alone", "GP limit", *(f"N={n}" for n in widths))
    accuracies = np.zeros((len(designs), len(lines), len(noises), n_seeds))
    correlations = np.zeros((len(designs), len(widths), len(noises), n_seeds))
    for (d, design), (k, noise), i in _product(designs, noises, n_seeds):
        settings = task | {"design": design, "sigma_perp": float(noise)}
        data = problem.example(seed + i, **settings)
        found = [data.solve(width, temperature).U for width in widths]
        for line, U in enumerate((data.only("good"), np.eye(2), *found)):
            accuracies[d, line, k, i] = data.accuracy_at(U, temperature)
        correlations[d, :, k, i] = [problem.correlation(U, 0, 1) for U in found]

    plt = plots.pyplot()
    figure, axes = plt.subplots(
        2, len(designs), figsize=(4.6 * len(designs), 6), layout="constrained", squeeze=False
    )
    metrics = {}
    for d, design in enumerate(designs):
        for values, labels, axis in (
            (accuracies[d], lines, axes[0, d]),
            (correlations[d], lines[2:], axes[1, d]),
        ):
            for label, by_noise in zip(labels, values):
                colour = plots.COLOURS[lines.index(label)]
                error = by_noise.std(1) / max(n_seeds - 1, 1) ** 0.5
                axis.errorbar(
                    noises, by_noise.mean(1), error, color=colour, capsize=3, marker=".",
                    label=label,
                )  # fmt: skip
                kind = "accuracy" if axis is axes[0, d] else "correlation"
                for noise, row in zip(noises, by_noise):
                    metrics[f"{kind}/{design}/{label}/sigma_perp={noise:g}"] = over_seeds(row)
        last = accuracies[d, :, -1].mean(-1)
        best = 2 + int(np.argmax(last[2:]))
        axes[0, d].set_title(
            f"{_design_words(design)}: at noise {noises[-1]:g} {lines[best]} keeps "
            f"{100 * last[best]:.1f} %,\nthe good path alone {100 * last[0]:.1f} %",
            fontsize=9,
        )
        axes[0, d].set_ylabel("test accuracy")
        axes[1, d].set(xlabel="perpendicular noise", ylabel="correlation of the two paths in U")
        axes[1, d].axhline(0, color="0.6", lw=0.8)
    axes[0, 0].legend(fontsize=8)
    lowest = correlations[0, :, -1].mean(-1)
    figure.suptitle(
        f"The network subtracts one path from the other: correlation {lowest.min():.2f} at noise "
        f"{noises[-1]:g}",
        fontsize=11,
    )
    arrays = {"noises": noises, "accuracy": accuracies, "correlation": correlations}
    return Outcome(figure, arrays, metrics, {"chance": 0.5})


def _design_words(design: str) -> str:
    uniform = design == "two_paths_uniform"
    return "uniform attention as second head" if uniform else "random second head"


def _product(designs, noises, n_seeds):
    return [
        ((d, design), (k, noise), i)
        for d, design in enumerate(designs)
        for k, noise in enumerate(noises)
        for i in range(n_seeds)
    ]


def _sample(data: problem.Example, width, temperature, draws, warmup, seed: int):
    return attention_paths.sample(
        jax.random.key(seed),
        data.attentioned,
        data.labels,
        width,
        temperature,
        data.heads,
        draws,
        warmup,
        2,
    )
