"""Path kernels, and the alignment of their combination with the task.

K is the kernel of all paths at the order parameter U, and Y are the P labels.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments.papers import plots
from experiments.papers.attention_paths import problem
from experiments.papers.attention_paths.problem import Datasets
from experiments.papers.outcome import Figure, Outcome, exact
from theory.attention_paths.kernel import kernel_alignment, kernel_of_U, kernel_task_overlap


def measure_alignment(widths: Sequence[int], components: int, sets: Datasets) -> Outcome:
    """Measures |e_k . Y| / sqrt(P) of the leading principal components e_k of K.

    The leading axis has the GP limit, then the widths in reverse.
    """
    labels = ("GP limit", *(f"N = {n}" for n in widths[::-1]))
    problems = [(data, *data.of_one_output()) for data in sets.examples()]
    components = min(components, len(problems[0][2]))
    overlaps = np.zeros((len(labels), len(problems), components))
    aligned = np.zeros((len(labels), len(problems)))
    for i, (data, inputs, targets) in enumerate(problems):
        solved = [np.asarray(data.solve(width, sets.temperature).U) for width in widths[::-1]]
        for k, U in enumerate((np.eye(len(data.names)), *solved)):
            kernel, labels_P = kernel_of_U(inputs, U), jnp.asarray(targets)
            overlaps[k, i] = np.asarray(kernel_task_overlap(kernel, labels_P))[:components]
            aligned[k, i] = kernel_alignment(kernel, labels_P)
    captured = np.cumsum(overlaps**2, axis=-1)  # the share of Y in the leading components
    top = min(5, components)
    names = [label.replace(" = ", "=").replace(" ", "_") for label in labels]
    outcome = Outcome({"overlap": overlaps, "alignment": aligned, "labels": labels})
    outcome.grid(f"top{top}_overlap/{{}}", captured[:, :, top - 1], names)
    outcome.grid("alignment/{}", aligned, names)
    return outcome


def draw_alignment(arrays):
    figure, (left, right) = plots.row(2, (plots.PAGE, 2.1))
    labels, overlaps = arrays["labels"], arrays["overlap"]
    n_components = overlaps.shape[-1]
    ranks = np.arange(1, n_components + 1)
    captured = np.cumsum(overlaps**2, axis=-1)
    for k, (label, colour) in enumerate(zip(labels, plots.COLOURS[::-1])):
        left.plot(ranks, overlaps[k].mean(0), marker=".", color=colour, label=label)
        plots.means(right, ranks, captured[k], color=colour)
    left.set(xlabel="principal component of K", ylabel=r"overlap $|e_k \cdot Y|$ / √P")
    right.set(xlabel="leading components", ylabel="share of the labels", ylim=(0, 1))
    means = captured[:, :, min(5, n_components) - 1].mean(1)
    plots.add_finding(
        figure,
        f"The five leading components carry {100 * means[-1]:.0f} % of the labels at "
        f"{labels[-1]}, {100 * means[0]:.0f} % in the GP limit",
        f"Theory on {problem.data_sets_phrase(overlaps.shape[1])}",
        left,
    )
    return figure


def measure_path_kernels(
    task: dict[str, Any], widths: Sequence[int], temperature: float, seed: int
) -> Outcome:
    """Computes P x P kernels: of each path, of a pair of paths, and K in the GP limit and at N."""
    data = problem.example(seed, **task)
    inputs, labels = data.of_one_output()
    order = np.argsort(-labels, kind="stable")
    inputs, labels = inputs[order], labels[order]
    scaled = inputs / inputs.shape[2] ** 0.5
    panels = {name: scaled[:, i] @ scaled[:, i].T for i, name in enumerate(data.names)}
    # Path 0 is paired with path 2, which is the denoising one of four, or with the last path.
    if other := min(2, len(panels) - 1):
        cross = scaled[:, 0] @ scaled[:, other].T
        panels[f"{data.names[0]} x {data.names[other]}"] = (cross + cross.T) / 2
    panels["K, GP limit"] = np.asarray(kernel_of_U(inputs, np.eye(len(data.names))))
    for width in widths:
        U = data.solve(width, temperature).U
        panels[f"K, N = {width}"] = np.asarray(kernel_of_U(inputs, U))
    labels_P = jnp.asarray(labels)
    aligned = {n: float(kernel_alignment(jnp.asarray(K), labels_P)) for n, K in panels.items()}
    arrays = {name.replace(" ", ""): kernel for name, kernel in panels.items()}
    metrics = {f"alignment/{name.replace(' ', '')}": exact(v) for name, v in aligned.items()}
    arrays |= {"names": [*panels], "aligned": [*aligned.values()], "paths": data.names}
    return Outcome(arrays, metrics)


def draw_path_kernels(arrays, widths: Sequence[int]):
    aligned = dict(zip(arrays["names"].tolist(), arrays["aligned"], strict=True))
    columns, rows = 4, -(-len(aligned) // 4)
    figure, axes = plots.grid(rows, columns, (plots.PAGE, 1.75 * rows))
    for axis in axes.flat[len(aligned) :]:
        axis.set_axis_off()
    for axis, (name, value) in zip(axes.flat, aligned.items()):
        kernel = arrays[name.replace(" ", "")]
        off_diagonal = kernel[~np.eye(len(kernel), dtype=bool)]
        # The diagonal is a sum of squares and would hide everything else.
        shown = (kernel - off_diagonal.mean()) / off_diagonal.std()
        image = axis.imshow(shown, cmap="RdBu_r", vmin=-2.5, vmax=2.5)
        axis.set(xticks=[], yticks=[])
        axis.spines[:].set_visible(True)
        axis.set_title(f"{name}: {value:.3f}")
    plots.add_colour_bar(figure, image, axes, "entry, in deviations from the mean", extend="both")
    best = max(arrays["paths"].tolist(), key=aligned.__getitem__)
    plots.add_finding(
        figure,
        f"Alignment with the classes is {aligned['K, GP limit']:.3f} in the GP limit and "
        f"{aligned[f'K, N = {widths[-1]}']:.3f} at N = {widths[-1]}; of single paths {best} has "
        "the most",
        "Kernels of all pairs of examples, label +1 first; mean and deviation are taken over the "
        "entries off the diagonal. Alignment: Y'KY/(P|K|).",
    )
    return figure


ALIGNMENT = Figure(measure=measure_alignment, draw=draw_alignment)
PATH_KERNELS = Figure(measure=measure_path_kernels, draw=draw_path_kernels)
