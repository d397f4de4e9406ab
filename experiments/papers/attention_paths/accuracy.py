"""Attention paths on the hidden Markov task: accuracy and order parameter against width and noise.

Nothing is trained: the theory solves for the order parameter U, and NUTS samples its posterior. U
is a matrix with a row and a column for each path. N is the width of every layer, and the GP limit
is N to infinity, where U is the identity.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from experiments.papers import plots
from experiments.papers.attention_paths import problem
from experiments.papers.attention_paths.problem import Datasets
from experiments.papers.outcome import Figure, Outcome, exact
from jaxformer.core.errors import UserError
from jaxformer.training.metrics import Mean, over_seeds
from theory import attention_paths
from theory.attention_paths.diagnostics import MIN_DRAWS, monte_carlo_error

CHAINS = 2  # of a sampled posterior
COMBINED = ("good", "denoising")  # paths that the paper combines in the GP limit


def measure_accuracy(
    widths: Sequence[int], sampled_widths: Sequence[int], draws: int, warmup: int, sets: Datasets
) -> Outcome:
    """Measures test accuracy against N: theory, exact posterior, GP limit and single paths.

    Args:
      widths: Widths N of the theory.
      sampled_widths: Widths N at which the posterior is sampled.
      draws: Sampled networks of each width.
      warmup: Steps of each chain before its first draw.
      sets: The data sets.
    """
    temperature, examples = sets.temperature, sets.examples()
    names, n_sets = examples[0].names, len(examples)  # names of the paths
    # Predictors of the GP limit, by the paths that they use.
    path_sets: dict[str, Sequence[str]] = {"GP limit": names, names[0]: names[:1]}
    if {*COMBINED} < {*names}:
        path_sets[" + ".join(COMBINED)] = COMBINED
    path_sets |= {name: (name,) for name in names[1:]}
    limits = np.zeros((len(path_sets), n_sets))
    theory, action = np.zeros((2, n_sets, len(widths)))
    sampled = np.zeros((n_sets, len(sampled_widths)))
    chains: dict[str, Any] = {}
    for i, data in enumerate(examples):
        for k, paths in enumerate(path_sets.values()):
            limits[k, i] = data.accuracy_at(data.only(*paths), temperature)
        for k, width in enumerate(widths):
            solved = data.solve(width, temperature)
            theory[i, k], action[i, k] = data.accuracy_at(solved.U, temperature), solved.action
        for k, width in enumerate(sampled_widths):
            posterior = _sample(data, width, temperature, draws, warmup, sets.seed + i)
            sampled[i, k] = data.accuracy(posterior.mean(data.attentioned_test))
            chains[f"N={width}, dataset {i}"] = posterior.diagnostics

    arrays = {"widths": widths, "accuracy": theory, "action": action}
    arrays |= {"sampled_widths": sampled_widths, "accuracy_sampled": sampled}
    arrays |= {"alone": [*path_sets], "accuracy_alone": limits}
    outcome = Outcome(arrays, {}, {"chance": sets.chance(examples)}, chains)
    outcome.grid("accuracy/N={}", theory.T, widths)
    for width, values in zip(sampled_widths, sampled.T):
        chains_of_width = {name: x for name, x in chains.items() if name.startswith(f"N={width},")}
        numbers = {f"accuracy_sampled/N={width}": values}
        if width in widths:
            gaps = values - theory[:, list(widths).index(width)]
            numbers[f"accuracy_sampled_minus_theory/N={width}"] = gaps
        for name, by_set in numbers.items():
            mean = over_seeds(by_set)
            outcome.metrics[name] = mean._replace(sem=_trusted_error(mean.sem, chains_of_width))
    outcome.grid("action/N={}", action.T, widths)
    outcome.grid("accuracy/{}", limits, path_sets)
    return outcome


def draw_accuracy(arrays, widths: Sequence[int], sampled_widths: Sequence[int]):
    figure, (axis,) = plots.row(1, (plots.COLUMN, 2.3))
    theory, blue, red = arrays["accuracy"], *plots.COLOURS[:2]
    plots.means(axis, widths, theory, fmt="-", color=blue, label="theory")
    style = {"fmt": "o", "color": red, "label": "exact posterior, sampled"}
    plots.means(axis, sampled_widths, arrays["accuracy_sampled"], **style)
    limits_by_paths = dict(
        zip(arrays["alone"].tolist(), arrays["accuracy_alone"].mean(1), strict=True)
    )
    for name, value in limits_by_paths.items():
        colour, dashes = ("black", "--") if name == "GP limit" else ("0.55", ":")
        axis.axhline(value, lw=0.8, color=colour, ls=dashes)
    bottom, top = axis.get_ylim()
    height = -1.0
    style = {"fontsize": plots.figure_style.SMALLEST, "va": "center"}
    for name, value in sorted(limits_by_paths.items(), key=lambda item: item[1]):
        height = max(value, height + 0.055 * (top - bottom))  # labels must not overlap
        is_single_path = name != "GP limit" and "+" not in name
        text = f"{name} alone" if is_single_path else name
        axis.annotate(text, (1.02, height), xycoords=("axes fraction", "data"), **style)
    axis.set(xscale="log", xlabel="width N", ylabel="test accuracy")
    best, limit = int(theory.mean(0).argmax()), limits_by_paths["GP limit"]
    best_accuracy = theory[:, best].mean()
    verb = "beats" if best_accuracy > limit else "does not beat"
    adversarial = " a1, a2: adversarial paths." if "a1" in limits_by_paths else ""
    plots.add_finding(
        figure,
        f"Finite width {verb} the GP limit: {100 * best_accuracy:.1f} % at N = {widths[best]}, "
        f"{100 * limit:.1f} % at infinity",
        problem.data_sets_phrase(len(theory)).capitalize() + adversarial,
        axis,
    )
    return figure


def check_order_parameter(draws: int) -> None:
    """Raises unless all chains have the same number of draws, enough for their diagnostics."""
    least = CHAINS * MIN_DRAWS
    if draws % CHAINS or draws < least:
        raise UserError(
            f"figure.draws must be a multiple of {CHAINS}, its number of chains, and at least "
            f"{least}; got {draws}."
        )


def measure_order_parameter(
    task: dict[str, Any],
    widths: Sequence[int],
    temperature: float,
    draws: int,
    warmup: int,
    seed: int,
) -> Outcome:
    """Measures U three ways: theory, its posterior mean, and the Gram matrix of V_eff.

    V_eff has the effective weights of each path in a sampled network (see `effective_weights`).
    """
    data = problem.example(seed, **task)
    names, metrics, chains = data.names, {}, {}
    arrays: dict[str, Any] = {"widths": widths, "names": names}
    upper = np.triu_indices(len(names))
    for width in widths:
        theory = data.solve(width, temperature)
        posterior = _sample(data, width, temperature, draws, warmup, seed)
        chains[f"N={width}"] = posterior.diagnostics
        by_chain = posterior.U.reshape(CHAINS, -1, *posterior.U.shape[1:])
        errors = monte_carlo_error(by_chain[:, :, *upper])
        errors *= _trusted_error(1.0, {f"N={width}": posterior.diagnostics})
        sampled = posterior.U.mean(0)
        arrays |= {f"theory/N={width}": theory.U, f"sampled/N={width}": sampled}
        arrays[f"effective/N={width}"] = posterior.gram_effective()
        for i, j, error in zip(*upper, errors):
            metrics[f"U/N={width}/{names[i]},{names[j]}"] = exact(float(theory.U[i, j]))
            mean = Mean(float(sampled[i, j]), float(error), len(posterior.U))
            metrics[f"E[U]/N={width}/{names[i]},{names[j]}"] = mean
        metrics[f"gradient_norm/N={width}"] = exact(float(theory.gradient_norm))
    return Outcome(arrays, metrics, chains=chains)


def draw_order_parameter(arrays, widths: Sequence[int]):
    kinds = {"theory": "theory, U", "sampled": "sampled, E[U]", "effective": "sampled, V V'/n"}
    figure, axes = plots.grid(3, len(widths), (plots.PAGE, 5.6), sharex=True, sharey=True)
    names = arrays["names"].tolist()
    shown = {(k, n): arrays[f"{k}/N={n}"] for k in kinds for n in widths}
    limit = max(np.abs(U).max() for U in shown.values())
    for (kind, title), row in zip(kinds.items(), axes, strict=True):
        row[0].set_ylabel(title)
        for axis, width in zip(row, widths, strict=True):
            image = plots.heat(axis, shown[kind, width], names, limit)
    for axis, width in zip(axes[0], widths, strict=True):
        axis.set_title(f"N = {width}")
    plots.add_colour_bar(figure, image, axes, "entry of the order parameter", aspect=40)
    narrow, wide = (shown["theory", n] for n in (min(widths), max(widths)))
    first, second = np.argsort(-np.diagonal(narrow))[:2]
    correlation, wide_U = problem.correlation(narrow, first, second), np.diagonal(wide)
    caption = (
        "One data set, one colour scale. V V'/n has the mean U where tokens' size n is far above N."
    )
    if "good" in names:
        adversarial = "a1, a2 are adversarial: they lead to the wrong class"
        others = f"; {adversarial}" if "a1" in names else ""
        caption += f" good computes the label, denoising sees its noise{others}."
    plots.add_finding(
        figure,
        f"In theory the network of N = {min(widths)} uses the paths {names[first]} (U = "
        f"{narrow[first, first]:.1f}) and {names[second]} ({narrow[second, second]:.1f}), with "
        f"correlation {correlation:.2f}; at N = {max(widths)} all paths count about alike "
        f"({wide_U.min():.2f} to {wide_U.max():.2f})",
        caption,
    )
    return figure


def measure_robustness(
    designs: Sequence[str], widths: Sequence[int], noises: Sequence[float], sets: Datasets
) -> Outcome:
    """Measures accuracy and the correlation of two paths against the noise sigma_perp."""
    lines = _line_labels(widths)
    accuracies = np.zeros((len(designs), len(lines), len(noises), sets.n_seeds))
    correlations = np.zeros((len(designs), len(widths), len(noises), sets.n_seeds))
    for d, k in np.ndindex(len(designs), len(noises)):
        examples = sets.examples(design=designs[d], sigma_perp=float(noises[k]))
        for i, data in enumerate(examples):
            solved = [data.solve(width, sets.temperature).U for width in widths]
            predictors = (data.only("good"), np.eye(2), *solved)  # in the order of `_line_labels`
            for line, U in enumerate(predictors):
                accuracies[d, line, k, i] = data.accuracy_at(U, sets.temperature)
            correlations[d, :, k, i] = [problem.correlation(U, 0, 1) for U in solved]
    arrays = {"noises": noises, "accuracy": accuracies, "correlation": correlations}
    outcome = Outcome(arrays, baselines={"chance": 0.5})
    outcome.grid("accuracy/{}/{}/sigma_perp={:g}", accuracies, designs, lines, noises)
    outcome.grid("correlation/{}/{}/sigma_perp={:g}", correlations, designs, lines[2:], noises)
    return outcome


def draw_robustness(arrays, designs: Sequence[str], widths: Sequence[int], noises: Sequence[float]):
    size, shared = (plots.PAGE, 3.8), {"sharex": True, "sharey": "row"}
    figure, axes = plots.grid(2, len(designs), size, **shared)
    lines = _line_labels(widths)
    for d, (design, (top, bottom)) in enumerate(zip(designs, axes.T, strict=True)):
        accuracies, correlations = arrays["accuracy"][d], arrays["correlation"][d]
        by_line = dict(zip(lines, accuracies.swapaxes(1, 2), strict=True))
        plots.curves(top, noises, by_line, marker=".")
        by_line = dict(zip(lines[2:], correlations.swapaxes(1, 2), strict=True))
        plots.curves(bottom, noises, by_line, plots.COLOURS[2:], marker=".", label=None)
        last = accuracies[:, -1].mean(-1)
        best = 2 + int(np.argmax(last[2:]))  # the best finite width
        uniform = design == "two_paths_uniform"
        second_head = "uniform attention as second head" if uniform else "random second head"
        plots.set_title(
            top,
            f"{second_head}: at noise {noises[-1]:g} {lines[best]} keeps {100 * last[best]:.1f} %, "
            f"the good path alone {100 * last[0]:.1f} %",
        )
        bottom.set_xlabel("perpendicular noise")
        bottom.axhline(0, color="0.6", lw=0.8)
    axes[0, 0].set_ylabel("test accuracy")
    axes[1, 0].set_ylabel("correlation of the two paths")
    lowest = arrays["correlation"][0, :, -1].mean(-1)
    plots.add_finding(
        figure,
        f"The network subtracts one path from the other: correlation {lowest.min():.2f} at noise "
        f"{noises[-1]:g}",
        f"Theory on {problem.data_sets_phrase(arrays['accuracy'].shape[-1])}",
        axes[0, 0],
    )
    return figure


def _line_labels(widths: Sequence[int]) -> list[str]:
    return ["good alone", "GP limit", *(f"N={n}" for n in widths)]


def _sample(data: problem.Example, width, temperature, draws, warmup, seed: int):
    inputs = (data.attentioned, data.labels, width, temperature, data.heads)
    return attention_paths.sample(jax.random.key(seed), *inputs, draws, warmup, CHAINS)


def _trusted_error(sem: float, chains: Mapping[str, Any]) -> float:
    """Returns the standard error, or nan if any chain is not trusted. No rule is decided by nan."""
    for name, diagnostics in chains.items():
        if doubts := attention_paths.doubts(diagnostics):
            print(f"{name}: the chains are not trusted: {'; '.join(doubts)}.", flush=True)
            sem = math.nan
    return sem


ACCURACY = Figure(measure=measure_accuracy, draw=draw_accuracy)
ORDER_PARAMETER = Figure(
    measure=measure_order_parameter, draw=draw_order_parameter, check=check_order_parameter
)
ROBUSTNESS = Figure(measure=measure_robustness, draw=draw_robustness)
