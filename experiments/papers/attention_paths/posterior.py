"""The figure of the recipe `posterior`: E[U] as a map, against theory, and as traces."""

import numpy as np

from experiments.shared import plots


def draw_figure(names, posterior, arrays, metrics):
    """Three panels: E[U]; its entries beside the theory's; the largest entry by draw."""
    plt = plots.pyplot()
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    mean, theory = arrays["U"].mean(0), np.asarray(arrays["U_theory"])
    heat(left, mean, names)
    left.set_title("E[U], sampled", fontsize=10)

    rows, columns = np.triu_indices(len(names))
    if len(rows) > 10:  # the largest say it
        chosen = np.argsort(-np.abs(mean[rows, columns]))[:10]
        rows, columns = rows[chosen], columns[chosen]
    labels = [f"{names[i]},{names[j]}" for i, j in zip(rows, columns)]
    values = [metrics[f"U/{label}"] for label in labels]
    places = np.arange(len(rows))
    middle.bar(places, theory[rows, columns], color="0.8", label="theory (saddle point)")
    middle.errorbar(
        places, [v.mean for v in values], [v.sem for v in values], fmt="o", ms=4, capsize=3,
        color=plots.COLOURS[0], label="sampled (exact N)",
    )  # fmt: skip
    middle.set_xticks(places, labels, rotation=60, ha="right", fontsize=7)
    middle.axhline(0, color="0.4", lw=0.8)
    middle.legend(fontsize=8)
    middle.set_title("entries of U", fontsize=10)

    largest = int(np.argmax(np.diagonal(mean)))
    chains = len(posterior.diagnostics["step_size"])
    for trace in arrays["U"][:, largest, largest].reshape(chains, -1):
        right.plot(trace, lw=0.6)
    right.set(xlabel="draw of a chain", ylabel=f"U of the path {names[largest]}")
    right.set_title(
        f"r-hat {metrics['r_hat'].mean:.3f}, {metrics['ess'].mean:.0f} effective draws, "
        f"{metrics['divergences'].mean:.0f} divergent",
        fontsize=10,
    )
    ratio = mean[largest, largest] / theory[largest, largest]
    widths = sorted(set(posterior.problem.widths))
    figure.suptitle(
        f"N = {', '.join(map(str, widths))}: the {names[largest]} path counts most, its E[U] is "
        f"{ratio:.2f} of the theory's; accuracy {100 * metrics['accuracy'].mean:.1f} %",
        fontsize=11,
    )
    return figure


def heat(axis, U, names, numbers: bool = True) -> None:
    """A symmetric matrix, red positive and blue negative, its values written in if few."""
    U = np.asarray(U)
    top = np.abs(U).max()
    axis.imshow(U, cmap="RdBu_r", vmin=-top, vmax=top)
    if len(names) <= 8:
        axis.set_xticks(range(len(names)), names, fontsize=8)
        axis.set_yticks(range(len(names)), names, fontsize=8)
        for (i, j), value in np.ndenumerate(U if numbers else U[:0]):
            colour = "white" if abs(value) > 0.6 * top else "black"
            axis.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour)
    else:
        axis.set(xticks=[], yticks=[])
