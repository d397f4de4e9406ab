"""Head scores and pruning by theory, and networks of more heads and more layers."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.papers.attention_paths import problem
from experiments.papers.attention_paths.posterior import heat
from experiments.shared import plots
from experiments.shared.outcome import Outcome
from jaxformer.training.metrics import over_seeds
from theory import attention_paths


def head_scores(
    task: dict[str, Any],
    widths: Sequence[int],
    temperature: float,
    seed: int,
    n_seeds: int,
) -> Outcome:
    """The score of each head against N, and the accuracy that is lost by pruning it."""
    heads = problem.example(seed, **task).heads
    places = all_heads(heads)
    scores, drops = np.zeros((2, len(widths), n_seeds, len(places)))
    for i in range(n_seeds):
        data = problem.example(seed + i, **task)
        for k, width in enumerate(widths):
            U = data.solve(width, temperature).U
            scores[k, i] = np.concatenate(attention_paths.head_scores(U, heads))
            whole = data.accuracy_at(U, temperature)
            for h, (layer, head) in enumerate(places):
                pruned = attention_paths.prune(U, heads, layer, head)
                drops[k, i, h] = whole - data.accuracy_at(pruned, temperature)

    plt = plots.pyplot()
    figure, axes = plt.subplots(2, 1, figsize=(7, 6), layout="constrained", sharex=True)
    names, metrics = [head_name(*place) for place in places], {}
    for k, (width, colour) in enumerate(zip(widths, plots.COLOURS)):
        at = np.arange(len(places)) + (k - (len(widths) - 1) / 2) * 0.8 / len(widths)
        for axis, values, what in ((axes[0], scores, "score"), (axes[1], drops, "drop")):
            error = values[k].std(0) / max(n_seeds - 1, 1) ** 0.5
            size = 0.8 / len(widths)
            axis.bar(at, values[k].mean(0), size, color=colour, yerr=error, label=f"N = {width}")
            for h, name in enumerate(names):
                metrics[f"{what}/N={width}/{name}"] = over_seeds(values[k, :, h])
    axes[0].set_ylabel("head score (largest 1)")
    axes[1].set_ylabel("accuracy lost by pruning")
    axes[1].axhline(0, color="0.4", lw=0.8)
    axes[1].set_xticks(range(len(places)), names)
    axes[1].legend(fontsize=8, loc="upper right")
    lowest = int(np.argmin(scores[0].mean(0)))
    worst = int(np.argmax(drops[0].mean(0)))
    figure.suptitle(
        f"At N = {widths[0]} {names[lowest]} has the lowest score; without it accuracy changes by "
        f"{-100 * drops[0, :, lowest].mean():+.1f} %,\nwithout {names[worst]} by "
        f"{-100 * drops[0, :, worst].mean():+.1f} %",
        fontsize=11,
    )
    return Outcome(figure, {"widths": widths, "scores": scores, "drops": drops}, metrics)


def networks(
    task: dict[str, Any],
    widths: Sequence[int],
    temperature: float,
    seed: int,
    n_seeds: int,
) -> Outcome:
    """More heads or layers, good heads among random ones: U, accuracy against N, head scores."""
    first = problem.example(seed, **task)
    heads, paths, names = first.heads, len(first.names), first.names
    theory, gp = np.zeros((n_seeds, len(widths))), np.zeros(n_seeds)
    scores, shown = np.zeros((n_seeds, sum(heads))), np.zeros((n_seeds, paths, paths))
    for i in range(n_seeds):
        data = problem.example(seed + i, **task)
        gp[i] = data.accuracy_at(np.eye(paths), temperature)
        for k, width in enumerate(widths):
            U = data.solve(width, temperature).U
            theory[i, k] = data.accuracy_at(U, temperature)
            if k == 0:
                shown[i] = U
                scores[i] = np.concatenate(attention_paths.head_scores(U, heads))

    plt = plots.pyplot()
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
    heat(left, shown[0], names)
    order = np.argsort(-np.diagonal(shown.mean(0)))[:2]
    left.set_title(f"U at N = {widths[0]}, {paths} paths, h_1 slowest", fontsize=10)
    middle.errorbar(
        widths, theory.mean(0), theory.std(0) / max(n_seeds - 1, 1) ** 0.5, capsize=3,
        color=plots.COLOURS[0], marker="o", label="theory",
    )  # fmt: skip
    middle.axhline(gp.mean(), color="black", ls="--", lw=1, label="GP limit")
    middle.set(xscale="log", xlabel="width N", ylabel="test accuracy")
    middle.legend(fontsize=8)
    places = all_heads(heads)
    colours = [plots.COLOURS[layer] for layer, _ in places]
    error = scores.std(0) / max(n_seeds - 1, 1) ** 0.5
    right.bar(range(len(places)), scores.mean(0), color=colours, yerr=error)
    right.set_xticks(range(len(places)), [head_name(*p) for p in places], rotation=90, fontsize=7)
    right.set_ylabel(f"head score at N = {widths[0]}")
    best = int(np.argmax(theory.mean(0)))
    both = " and ".join(names[i] for i in order)
    figure.suptitle(
        f"{'x'.join(map(str, heads))} heads: the paths {both} count most; "
        f"{100 * theory[:, best].mean():.1f} % at N = {widths[best]} against "
        f"{100 * gp.mean():.1f} % in the GP limit",
        fontsize=11,
    )
    metrics = {f"accuracy/N={n}": over_seeds(theory[:, k]) for k, n in enumerate(widths)}
    metrics["accuracy/GP_limit"] = over_seeds(gp)
    for i in order:
        metrics[f"U/N={widths[0]}/{names[i]},{names[i]}"] = over_seeds(shown[:, i, i])
    for h, place in enumerate(places):
        metrics[f"score/{head_name(*place)}"] = over_seeds(scores[:, h])
    arrays = {"widths": widths, "accuracy": theory, "gp": gp, "U": shown, "scores": scores}
    return Outcome(figure, arrays, metrics, {"chance": 0.5})


def all_heads(heads: Sequence[int]) -> list[tuple[int, int]]:
    """(layer, head) of every head, layer by layer, from 0."""
    return [(layer, head) for layer, count in enumerate(heads) for head in range(count)]


def head_name(layer: int, head: int) -> str:
    """ "(1)2": layer 1, head 2, as the paper writes it."""
    return f"({layer + 1}){head + 1}"
