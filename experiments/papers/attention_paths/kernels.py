"""Path kernels and how well their combination is aligned with the task."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments.papers.attention_paths import problem
from experiments.shared import plots
from experiments.shared.outcome import Outcome, exact
from jaxformer.training.metrics import over_seeds
from theory.attention_paths.kernel import (
    kernel_alignment,
    kernel_task_overlap,
    total_kernel,
)


def alignment(
    task: dict[str, Any],
    widths: Sequence[int],
    components: int,
    temperature: float,
    seed: int,
    n_seeds: int,
) -> Outcome:
    """|e_k . Y| / sqrt(P) of the leading principal components of K: the GP limit, then each N."""
    labels = ("GP limit", *(f"N = {n}" for n in widths[::-1]))
    overlaps = np.zeros((len(labels), n_seeds, components))
    aligned = np.zeros((len(labels), n_seeds))
    for i in range(n_seeds):
        data = problem.example(seed + i, **task)
        solved = [np.asarray(data.solve(width, temperature).U) for width in widths[::-1]]
        for k, U in enumerate((np.eye(len(data.names)), *solved)):
            kernel, labels_P = total_kernel(data.attentioned, U), jnp.asarray(data.labels)
            overlaps[k, i] = np.asarray(kernel_task_overlap(kernel, labels_P))[:components]
            aligned[k, i] = kernel_alignment(kernel, labels_P)
    captured = np.cumsum(overlaps**2, axis=-1)
    top = min(5, components)

    plt = plots.pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    metrics = {}
    for k, (label, colour) in enumerate(zip(labels, plots.COLOURS[::-1])):
        ranks = np.arange(1, components + 1)
        left.plot(ranks, overlaps[k].mean(0), marker=".", color=colour, label=label)
        error = captured[k].std(0) / max(n_seeds - 1, 1) ** 0.5
        right.errorbar(ranks, captured[k].mean(0), error, color=colour, label=label, capsize=2)
        name = label.replace(" = ", "=").replace(" ", "_")
        metrics[f"top{top}_overlap/{name}"] = over_seeds(captured[k, :, top - 1])
        metrics[f"alignment/{name}"] = over_seeds(aligned[k])
    left.set(xlabel="principal component of K", ylabel=r"$|e_k \cdot Y| / \sqrt{P}$")
    right.set(xlabel="leading components", ylabel="part of Y that they carry", ylim=(0, 1))
    right.legend(fontsize=8)
    means = captured[:, :, top - 1].mean(1)
    figure.suptitle(
        f"The five leading components carry {100 * means[-1]:.0f} % of the labels at "
        f"{labels[-1]}, {100 * means[0]:.0f} % in the GP limit",
        fontsize=11,
    )
    arrays = {"overlap": overlaps, "alignment": aligned, "labels": np.array(labels)}
    return Outcome(figure, arrays, metrics)


def path_kernels(
    task: dict[str, Any], widths: Sequence[int], temperature: float, seed: int
) -> Outcome:
    """The P x P kernels C of every path, of the two best together, and K at two widths."""
    data = problem.example(seed, **task)
    scaled = data.attentioned / data.attentioned.shape[2] ** 0.5
    panels, paths = {}, len(data.names)
    for i, name in enumerate(data.names):
        panels[name] = scaled[:, i] @ scaled[:, i].T
    two = 2 if paths > 2 else 1
    cross = scaled[:, 0] @ scaled[:, two].T
    panels[f"{data.names[0]} x {data.names[two]}"] = (cross + cross.T) / 2
    panels["K, GP limit"] = np.asarray(total_kernel(data.attentioned, np.eye(paths)))
    for width in widths:
        U = data.solve(width, temperature).U
        panels[f"K, N = {width}"] = np.asarray(total_kernel(data.attentioned, U))
    labels_P = jnp.asarray(data.labels)
    aligned = {
        name: float(kernel_alignment(jnp.asarray(K), labels_P)) for name, K in panels.items()
    }

    plt = plots.pyplot()
    columns = 4
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(2.7 * columns, 2.9 * rows), layout="constrained", squeeze=False
    )
    for axis in axes.flat:
        axis.set_axis_off()
    for axis, (name, kernel) in zip(axes.flat, panels.items()):
        off = kernel[~np.eye(len(kernel), dtype=bool)]
        # The diagonal, a sum of squares, would hide everything else.
        centre, spread = off.mean(), 2.5 * off.std()
        axis.set_axis_on()
        axis.imshow(kernel, cmap="RdBu_r", vmin=centre - spread, vmax=centre + spread)
        axis.set(xticks=[], yticks=[])
        axis.set_title(f"{name}\nalignment {aligned[name]:.3f}", fontsize=9)
    last = f"K, N = {widths[-1]}"
    best = max(data.names, key=aligned.__getitem__)
    figure.suptitle(
        f"Class structure (label +1 first): alignment {aligned['K, GP limit']:.3f} in the GP "
        f"limit, {aligned[last]:.3f} at N = {widths[-1]}; of single paths {best} has the most",
        fontsize=10,
    )
    arrays = {name.replace(" ", ""): kernel for name, kernel in panels.items()}
    metrics = {f"alignment/{name.replace(' ', '')}": exact(v) for name, v in aligned.items()}
    return Outcome(figure, arrays, metrics)
