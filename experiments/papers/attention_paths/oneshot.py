"""The figure of the recipe `oneshot`: eight panels about the trained networks of all seeds.

The arrays come from `study.summarise` and have a leading axis S of networks. On an axis W of widths
index 0 is the GP limit and index 1 the first finite width. T is the axis of temperatures, H of
heads, P of the kernel's components.
"""

import numpy as np

from experiments.papers import plots
from experiments.papers.attention_paths.problem import path_names
from experiments.papers.attention_paths.resemblance import correlation
from experiments.papers.attention_paths.study import LEADING, width_name
from jaxformer.stats.differences import half_width
from jaxformer.training.metrics import Mean, over_seeds


def draw(arrays, heads: tuple[int, ...]):
    """Draws eight panels.

    Upper four: accuracy, temperature scan, head scores, overlap with the labels. Lower four: U of
    the trained network, U of the theory, pruning, and both head scores against each other.
    """
    from matplotlib.ticker import MaxNLocator

    figure, axes = plots.grid(4, 2, (plots.PAGE, 8.6))
    widths = [width_name(width) for width in arrays["widths"][0]]
    sets = [name.removesuffix("/scan") for name in arrays if name.endswith("/scan")]
    accuracies = {name: _accuracies(arrays, name, widths) for name in sets}
    _draw_accuracies(axes[0, 0], accuracies)
    _draw_temperature_scan(axes[0, 1], arrays, widths)
    _draw_pruning_costs(axes[1, 0], arrays, sets)
    _draw_overlap(axes[1, 1], arrays["overlap"], widths)
    names = path_names(heads)
    for axis, U, title in (
        (axes[2, 0], arrays["U_learned"][0], "trained U = v v'"),
        (axes[2, 1], arrays["U_theory"][0, 1], f"theory's U, {widths[1]}"),
    ):
        # A colour bar at the side would make every panel of the column narrower.
        style = {"location": "bottom", "ticks": MaxNLocator(4, symmetric=True)}
        plots.add_colour_bar(figure, plots.heat(axis, U, names), axis, "entry of U", **style)
        plots.set_title(axis, f"{title}, first network")
        axis.set(xlabel=f"path, {len(names)} of them", ylabel="path")
    _draw_pruning(axes[3, 0], arrays, sets)
    _draw_score_comparison(axes[3, 1], arrays, widths[1])
    test = accuracies["test"]
    gap, trained = over_seeds(test[widths[1]] - test["GP"]), test["gradient_descent"].mean()
    error = half_width([(gap.sem, gap.n)], 0.0)  # as in the ledger
    verb = "beats" if gap.mean > error else "cannot be told from"
    verb = "is worse than" if gap.mean < -error else verb
    plots.add_finding(
        figure,
        f"On held-out classes {widths[1]} {verb} the GP limit: "
        f"{100 * gap.mean:+.1f} ± {100 * gap.sem:.1f} points over {gap.n} seeds; gradient "
        f"descent {100 * trained:.1f} %",
        "Bars and bands: standard errors over networks; classes and test episodes are one draw. "
        "The two U have different norms, so each has its own scale.",
    )
    return figure


def _accuracies(arrays, name: str, widths: list[str]) -> dict[str, np.ndarray]:
    """Returns the accuracy of gradient descent, and of each width at its chosen temperature."""
    best_SxW = arrays["validation"].argmax(2)
    chosen_SxW = np.take_along_axis(arrays[f"{name}/scan"], best_SxW[..., None], 2)[..., 0]
    trained_S = arrays[f"{name}/low_first"][:, 0]  # accuracy before the first head is pruned
    return {"gradient_descent": trained_S} | dict(zip(widths, chosen_SxW.T, strict=True))


def _title(name: str) -> str:
    return "held-out classes" if name == "test" else name


def _draw_accuracies(axis, accuracies) -> None:
    groups = {
        _title(name): np.stack([*by_kind.values()], 1) for name, by_kind in accuracies.items()
    }
    plots.bars(axis, groups)
    axis.axhline(0.5, color="0.3", ls=":", lw=1)
    kinds = [kind.replace("_", "\n") for kind in accuracies["test"]]
    axis.set_xticks(range(len(kinds)), kinds)
    axis.set(ylabel="accuracy", ylim=(0.4, 1.0))
    plots.label_panel(axis, "temperature chosen on validation classes; dotted: chance")


def _draw_temperature_scan(axis, arrays, widths: list[str]) -> None:
    temperatures, accuracies_SxWxT = arrays["temperatures"][0], arrays["test/scan"]
    by_width = dict(zip(widths, accuracies_SxWxT.swapaxes(0, 1), strict=True))
    plots.curves(axis, temperatures, by_width, ("black", *plots.COLOURS), marker=".")
    axis.set(xscale="log", xlabel="temperature T", ylabel="accuracy, held-out classes")
    plots.value_ticks(axis, temperatures)
    best = accuracies_SxWxT.mean(0).max(1)
    plots.label_panel(axis, f"the best T gives {100 * best.max():.1f} % ({widths[best.argmax()]})")


def _draw_pruning_costs(axis, arrays, sets: list[str]) -> None:
    for name, colour in zip(sets, plots.COLOURS):
        scores, drops = arrays["scores"].ravel(), arrays[f"{name}/drops"].ravel()
        axis.plot(scores, 100 * drops, "o", ms=3, color=colour, alpha=0.7, label=_title(name))
    correlations = _correlations(arrays["scores"], arrays["test/drops"])
    axis.axhline(0, color="0.6", lw=0.8)
    axis.set(xlabel="head score of the theory", ylabel="accuracy lost (%)")
    title = "accuracy lost without a head: correlation, held-out classes"
    plots.label_panel(axis, f"{title}, {correlations.mean:.2f}")


def _correlations(one_SxH, other_SxH) -> Mean:
    """Returns the correlation of two scores of a network's heads, as a mean over networks."""
    return over_seeds([correlation(one, other).mean for one, other in zip(one_SxH, other_SxH)])


def _draw_overlap(axis, overlap_SxWxP, widths: list[str]) -> None:
    """Draws Figure 3d of the paper: the share of the labels in the leading components of K."""
    share_SxWxP = np.cumsum(overlap_SxWxP**2, -1)
    ranks = np.arange(1, share_SxWxP.shape[-1] + 1)
    for k, (width, colour) in enumerate(zip(widths, ("black", *plots.COLOURS))):
        mean = share_SxWxP[:, k].mean(0)
        error = share_SxWxP[:, k].std(0) / max(len(share_SxWxP) - 1, 1) ** 0.5
        plots.band(axis, ranks, mean - error, mean, mean + error, colour, width, alpha=0.2)
    axis.axvline(LEADING, color="0.6", lw=0.8)
    by_leading_W = share_SxWxP[:, :, LEADING - 1].mean(0)
    axis.set(xscale="log", xlabel="leading components of the kernel", ylabel="share of the labels")
    plots.label_panel(
        axis,
        f"the first {LEADING} carry {100 * by_leading_W[1]:.0f} % of the labels at {widths[1]}, "
        f"{100 * by_leading_W[0]:.0f} % in the GP limit",
    )


def _draw_score_comparison(axis, arrays, width: str) -> None:
    """Draws Figure 3e: the scores of a head in the theory and in the trained U, a dot a head."""
    theory, learned = arrays["scores"], arrays["scores_learned"]
    for one, other, colour in zip(theory, learned, plots.COLOURS * len(theory)):
        axis.plot(one, other, "o", ms=3, color=colour)
    correlations = _correlations(learned, theory)
    axis.set(xlabel=f"head score, theory at {width}", ylabel="head score of the trained U")
    error = "" if np.isnan(correlations.sem) else f" ± {correlations.sem:.2f}"
    plots.set_title(axis, f"correlation {correlations.mean:.2f}{error}; a colour a network")


def _draw_pruning(axis, arrays, sets: list[str]) -> None:
    for name, colour in zip(sets, plots.COLOURS):
        for order, dashes in (("low_first", "-"), ("high_first", ":")):
            accuracies = arrays[f"{name}/{order}"]
            label = f"{'held-out' if name == 'test' else name}, {order.replace('_', ' ')}"
            style = {"color": colour, "ls": dashes, "label": label}
            plots.means(axis, range(accuracies.shape[1]), accuracies, **style)
    axis.axhline(0.5, color="0.3", ls=":", lw=1)
    axis.set(xlabel="heads pruned, in the order of their scores", ylabel="accuracy")
    half = arrays["test/low_first"].shape[1] // 2
    low, high = (arrays[f"test/{order}_first"][:, half].mean() for order in ("low", "high"))
    plots.label_panel(
        axis,
        f"half of the prunable heads gone: {100 * low:.1f} % (lowest scores first) or "
        f"{100 * high:.1f} % (highest first)",
    )
