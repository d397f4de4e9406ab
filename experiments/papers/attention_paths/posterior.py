"""The figure of the recipe `posterior`, about E[U], the posterior mean of the order parameter.

It shows E[U] as a heat map and against the theory, and traces of the sampled U.
"""

import numpy as np

from experiments.papers import plots

MAX_ENTRIES = 10  # of U in the middle panel


def figure_arrays(names, posterior, metrics) -> dict[str, np.ndarray]:
    """Returns the figure's arrays except the draws: names, errors of E[U], diagnostics."""
    labels = [f"{names[i]},{names[j]}" for i, j in zip(*np.triu_indices(len(names)))]
    metric_names = ("r_hat", "ess", "divergences", "accuracy")
    return {
        "names": np.array(names),
        "U_error": np.array([metrics[f"U/{label}"].sem for label in labels]),
        "chains": np.array(len(posterior.diagnostics["step_size"])),
        "widths": np.array(posterior.problem.widths),
        "doubts": np.array(posterior.doubts, str),
    } | {name: np.array(metrics[name].mean) for name in metric_names}


def draw(arrays):
    """Draws three panels: E[U], its entries next to the theory's, and the largest entry by draw."""
    figure, (left, middle, right) = plots.row(3, (plots.PAGE, 2.6), width_ratios=(1.3, 1, 1))
    names, mean, theory = arrays["names"], arrays["U"].mean(0), np.asarray(arrays["U_theory"])
    plots.add_colour_bar(
        figure, plots.heat(left, mean, names), left, "E[U], sampled", location="bottom"
    )
    left.tick_params(axis="x", rotation=90)

    rows, columns = np.triu_indices(len(names))
    chosen = np.arange(len(rows))
    if len(rows) > MAX_ENTRIES:  # only the largest
        chosen = np.argsort(-np.abs(mean[rows, columns]))[:MAX_ENTRIES]
    rows, columns, x = rows[chosen], columns[chosen], np.arange(len(chosen))
    middle.bar(x, theory[rows, columns], color="0.8", label="theory (saddle point)")
    style = {"fmt": "o", "color": plots.COLOURS[0], "label": "sampled (exact N)"} | plots.DOT
    middle.errorbar(x, mean[rows, columns], arrays["U_error"][chosen], **style)
    labels = [f"{names[i]},{names[j]}" for i, j in zip(rows, columns)]
    middle.set_xticks(x, labels, rotation=60, ha="right", fontsize=plots.figure_style.SMALLEST)
    middle.axhline(0, color="0.4", lw=0.8)
    middle.set_ylabel("entry of U")
    plots.label_panel(middle, columns=1)

    largest = int(np.argmax(np.diagonal(mean)))
    traces = arrays["U"][:, largest, largest].reshape(arrays["chains"], -1)
    for trace, colour in zip(traces, plots.cycle(len(traces))):
        right.plot(trace, lw=0.4, color=colour)
    right.set(xlabel="draw of a chain", ylabel=f"U of the path {names[largest]}")
    plots.set_title(
        right,
        f"r-hat {arrays['r_hat']:.3f}, {arrays['ess']:.0f} effective draws, "
        f"{arrays['divergences']:.0f} divergent",
    )
    ratio = mean[largest, largest] / theory[largest, largest]
    widths = ", ".join(map(str, np.unique(arrays["widths"])))
    title = (
        f"N = {widths}: the {names[largest]} path counts most, its E[U] is {ratio:.2f} of the "
        f"theory's; accuracy {100 * arrays['accuracy']:.1f} %"
    )
    if len(arrays["doubts"]):
        title = f"NOT TRUSTED: {', '.join(arrays['doubts'].tolist())}\n{title}"
    plots.add_finding(figure, title, "Bars: Monte Carlo errors of the mean; a colour is a chain.")
    return figure
