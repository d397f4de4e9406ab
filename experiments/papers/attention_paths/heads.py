"""Head scores and pruning in theory, and networks with more heads or more layers."""

from collections.abc import Sequence

import numpy as np

from experiments.papers import plots
from experiments.papers.attention_paths import problem
from experiments.papers.attention_paths.problem import Datasets
from experiments.papers.outcome import Figure, Outcome
from jaxformer.training.metrics import over_seeds
from theory import attention_paths


def measure_head_scores(widths: Sequence[int], sets: Datasets) -> Outcome:
    """Measures the score of each head against N, and the accuracy lost by pruning the head."""
    examples = sets.examples()
    positions = all_heads(examples[0].heads)  # (layer, head) of every head
    scores, drops = np.zeros((2, len(widths), len(examples), len(positions)))
    for i, data in enumerate(examples):
        for k, width in enumerate(widths):
            U = data.solve(width, sets.temperature).U
            scores[k, i] = np.concatenate(attention_paths.head_scores(U, data.heads))
            unpruned = data.accuracy_at(U, sets.temperature)
            for h, (layer, head) in enumerate(positions):
                pruned = attention_paths.prune(U, data.heads, layer, head)
                drops[k, i, h] = unpruned - data.accuracy_at(pruned, sets.temperature)
    names = [head_name(*position) for position in positions]
    outcome = Outcome({"widths": widths, "scores": scores, "drops": drops, "names": names})
    outcome.grid("score/N={}/{}", scores.swapaxes(1, 2), widths, names)
    outcome.grid("drop/N={}/{}", drops.swapaxes(1, 2), widths, names)
    return outcome


def draw_head_scores(arrays, widths: Sequence[int]):
    figure, axes = plots.grid(1, 2, (plots.PAGE, 1.9))
    names, scores, drops = arrays["names"], arrays["scores"], arrays["drops"]
    for axis, values in ((axes[0, 0], scores), (axes[0, 1], drops)):
        plots.bars(axis, {f"N = {n}": values[k] for k, n in enumerate(widths)})
        axis.set_xticks(range(len(names)), names)
        axis.set_xlabel("(layer) head, each from 1")
    axes[0, 0].set_ylabel("head score (largest 1)")
    axes[0, 1].set_ylabel("accuracy lost by pruning")
    axes[0, 1].axhline(0, color="0.4", lw=0.8)
    lowest, worst = scores[0].mean(0).argmin(), drops[0].mean(0).argmax()
    plots.add_finding(
        figure,
        f"At N = {widths[0]} {names[lowest]} has the lowest score; without it accuracy changes by "
        f"{-100 * drops[0, :, lowest].mean():+.1f} points, without {names[worst]} by "
        f"{-100 * drops[0, :, worst].mean():+.1f}",
        f"Theory on {problem.data_sets_phrase(scores.shape[1])}",
        axes[0, 0],
    )
    return figure


def measure_networks(widths: Sequence[int], sets: Datasets) -> Outcome:
    """Measures accuracy against N, U and head scores of networks with more heads or layers.

    U and the head scores are those of the first width.
    """
    examples, temperature = sets.examples(), sets.temperature
    n_sets = len(examples)
    heads, names = examples[0].heads, examples[0].names
    theory, gp = np.zeros((n_sets, len(widths))), np.zeros(n_sets)
    scores, narrowest_U = np.zeros((n_sets, sum(heads))), np.zeros((n_sets, len(names), len(names)))
    for i, data in enumerate(examples):
        gp[i] = data.accuracy_at(np.eye(len(names)), temperature)
        solved = [data.solve(width, temperature).U for width in widths]
        theory[i] = [data.accuracy_at(U, temperature) for U in solved]
        narrowest_U[i] = solved[0]
        scores[i] = np.concatenate(attention_paths.head_scores(solved[0], heads))
    arrays = {"widths": widths, "accuracy": theory, "gp": gp, "U": narrowest_U, "scores": scores}
    arrays |= {"names": names, "heads": heads}
    outcome = Outcome(arrays, baselines={"chance": sets.chance(examples)})
    outcome.grid("accuracy/N={}", theory.T, widths)
    outcome.metrics["accuracy/GP_limit"] = over_seeds(gp)
    for i in _largest(narrowest_U):
        outcome.metrics[f"U/N={widths[0]}/{names[i]},{names[i]}"] = over_seeds(narrowest_U[:, i, i])
    outcome.grid("score/{}", scores.T, [head_name(*head) for head in all_heads(heads)])
    return outcome


def draw_networks(arrays, widths: Sequence[int]):
    figure, (left, middle, right) = plots.row(3, (plots.PAGE, 2.0), width_ratios=(1.3, 1, 1.3))
    theory, gp, names = arrays["accuracy"], arrays["gp"].mean(), arrays["names"]
    image = plots.heat(left, arrays["U"].mean(0), names)
    plots.add_colour_bar(figure, image, left, "entry of U")
    left.set_title(f"U at N = {widths[0]}, mean")
    left.set(xlabel=f"{len(names)} paths", ylabel="paths, by head of layer 1")
    plots.means(middle, widths, theory, color=plots.COLOURS[0], marker="o", label="theory")
    middle.axhline(gp, color="black", ls="--", lw=1, label="GP limit")
    middle.set(xscale="log", xlabel="width N", ylabel="test accuracy")
    plots.label_panel(middle, columns=1)
    positions = all_heads(arrays["heads"])
    for layer in range(len(arrays["heads"])):
        indices = [i for i, position in enumerate(positions) if position[0] == layer]
        values = arrays["scores"][:, indices]
        error = values.std(0) / max(len(values) - 1, 1) ** 0.5
        style = {"color": plots.COLOURS[layer], "error_kw": {"elinewidth": 0.8}}
        right.bar(indices, values.mean(0), 0.8, yerr=error, label=f"layer {layer + 1}", **style)
    step = 1 if len(positions) <= 9 else 2
    labels = [str(head + 1) for _, head in positions]
    right.set_xticks(range(0, len(positions), step), labels[::step])
    right.set(xlabel="head of the layer", ylabel=f"head score at N = {widths[0]}")
    plots.label_panel(right)
    best, largest = theory.mean(0).argmax(), " and ".join(names[_largest(arrays["U"])])
    plots.add_finding(
        figure,
        f"{' x '.join(map(str, arrays['heads']))} heads: the paths {largest} count most; "
        f"{100 * theory[:, best].mean():.1f} % at N = {widths[best]} against "
        f"{100 * gp:.1f} % in the GP limit",
        f"Theory on {problem.data_sets_phrase(len(theory))} A path is named by its heads, from 1.",
    )
    return figure


def _largest(U_SxDxD: np.ndarray) -> np.ndarray:
    """Returns the two paths, of D, whose diagonal entries of U are largest on average over S."""
    return np.argsort(-np.diagonal(U_SxDxD.mean(0)))[:2]


def all_heads(heads: Sequence[int]) -> list[tuple[int, int]]:
    """Returns (layer, head) of every head, layer by layer, counted from 0."""
    return [(layer, head) for layer, count in enumerate(heads) for head in range(count)]


def head_name(layer: int, head: int) -> str:
    """Returns a name like "(1)2" for layer 1, head 2, as in the paper."""
    return f"({layer + 1}){head + 1}"


HEAD_SCORES = Figure(measure=measure_head_scores, draw=draw_head_scores)
NETWORKS = Figure(measure=measure_networks, draw=draw_networks)
