"""The figure of the recipe `oneshot`: eight panels over the trained networks of all seeds."""

import numpy as np

from experiments.papers.attention_paths.posterior import heat
from experiments.papers.attention_paths.problem import path_names
from experiments.papers.attention_paths.study import LEADING, Study, width_name
from experiments.shared import plots
from jaxformer.training.metrics import over_seeds


def draw_figure(studied: list[Study], metrics, heads: tuple[int, ...]):
    """Accuracy, temperature scan, head scores, overlap with the labels; two order parameters,
    pruning, the scores of theory beside those of the trained network."""
    plt = plots.pyplot()
    figure, axes = plt.subplots(2, 4, figsize=(17, 7.6), layout="constrained")
    widths = [width_name(width) for width in studied[0].arrays["widths"]]
    sets = [name.removesuffix("/scan") for name in studied[0].arrays if name.endswith("/scan")]
    _bars(axes[0, 0], metrics, sets, ["gradient_descent", *widths])
    _temperatures(axes[0, 1], studied, widths)
    _scores(axes[0, 2], studied, sets)
    names = path_names(heads)
    for axis, key, title in (
        (axes[1, 0], "U_learned", "gradient descent: v v', not normalised"),
        (axes[1, 1], "U_theory", f"theory at {widths[1]}, same queries and keys"),
    ):
        U = studied[0].arrays[key]
        heat(axis, U[1] if key == "U_theory" else U, names)
        axis.set_title(f"U, {title}", fontsize=9)
    _pruning(axes[1, 2], studied, sets)
    _overlap(axes[0, 3], studied, widths)
    _both_scores(axes[1, 3], studied, widths[1])
    gap = metrics[f"test/{widths[1]}_minus_GP"]
    beats = gap.mean > 2 * gap.sem
    words = "beats" if beats else "does not beat"
    worse = " (it is worse)" if gap.mean < -2 * gap.sem else ""
    figure.suptitle(
        f"On held-out classes {widths[1]} {words} the GP limit{worse}: "
        f"{100 * gap.mean:+.1f} +- {100 * gap.sem:.1f} points over {gap.n} seeds; gradient "
        f"descent {100 * metrics['accuracy'].mean:.1f} %",
        fontsize=11,
    )
    return figure


def _bars(axis, metrics, sets, kinds) -> None:
    size = 0.8 / len(sets)
    for k, (name, colour) in enumerate(zip(sets, plots.COLOURS)):
        values = [metrics[f"{name}/{kind}"] for kind in kinds]
        places = np.arange(len(kinds)) + (k - (len(sets) - 1) / 2) * size
        label = "held-out classes" if name == "test" else name
        errors = [np.nan_to_num(v.sem) for v in values]
        axis.bar(places, [v.mean for v in values], size, yerr=errors, color=colour, label=label)
    axis.axhline(0.5, color="0.3", ls=":", lw=1)
    axis.set_xticks(range(len(kinds)), [kind.replace("_", "\n") for kind in kinds], fontsize=8)
    axis.set(ylabel="accuracy", ylim=(0.4, 1.0))
    axis.legend(fontsize=8)
    axis.set_title("temperature chosen on validation classes", fontsize=9)


def _temperatures(axis, studied, widths) -> None:
    temperatures = studied[0].arrays["temperatures"]
    rows = np.stack([one.arrays["test/scan"] for one in studied])
    for k, (width, colour) in enumerate(zip(widths, ("black", *plots.COLOURS))):
        means = [over_seeds(rows[:, k, t]) for t in range(len(temperatures))]
        errors = [np.nan_to_num(m.sem) for m in means]
        axis.errorbar(
            temperatures, [m.mean for m in means], errors, color=colour, marker=".", capsize=3,
            label=width,
        )  # fmt: skip
    axis.set(xscale="log", xlabel="temperature T", ylabel="accuracy on held-out classes")
    axis.set_xticks(temperatures, [f"{t:g}" for t in temperatures])
    axis.minorticks_off()
    axis.legend(fontsize=8)
    best = rows.mean(0).max(1)
    axis.set_title(
        f"the best T gives {100 * best.max():.1f} % ({widths[best.argmax()]})", fontsize=9
    )


def _scores(axis, studied, sets) -> None:
    for name, colour in zip(sets, plots.COLOURS):
        scores = np.concatenate([one.arrays["scores"] for one in studied])
        drops = np.concatenate([one.arrays[f"{name}/drops"] for one in studied])
        axis.plot(scores, drops, "o", ms=4, color=colour, alpha=0.7, label=name)
    means = over_seeds([one.metrics["test/score_drop_correlation"].mean for one in studied])
    axis.axhline(0, color="0.6", lw=0.8)
    axis.set(xlabel="head score of the theory", ylabel="accuracy lost without the head")
    axis.set_title(f"correlation on held-out classes {means.mean:.2f}", fontsize=9)
    axis.legend(fontsize=8)


def _overlap(axis, studied, widths) -> None:
    """Figure 3d of the paper: how much of the labels lies in the leading components of K."""
    carried = np.cumsum(np.stack([one.arrays["overlap"] for one in studied]) ** 2, -1)
    ranks = np.arange(1, carried.shape[-1] + 1)
    for k, (width, colour) in enumerate(zip(widths, ("black", *plots.COLOURS))):
        mean = carried[:, k].mean(0)
        error = carried[:, k].std(0) / max(len(carried) - 1, 1) ** 0.5
        axis.plot(ranks, mean, color=colour, label=width)
        axis.fill_between(ranks, mean - error, mean + error, color=colour, alpha=0.2, lw=0)
    axis.axvline(LEADING, color="0.6", lw=0.8)
    five = carried[:, :, LEADING - 1].mean(0)
    axis.set(xscale="log", xlabel="leading components of the kernel", ylabel="share of the labels")
    axis.set_title(
        f"the first {LEADING} components carry {100 * five[1]:.0f} % of the\nlabels at "
        f"{widths[1]}, {100 * five[0]:.0f} % in the GP limit",
        fontsize=9,
    )
    axis.legend(fontsize=8)


def _both_scores(axis, studied, width: str) -> None:
    """Figure 3e: each dot is a head of a network."""
    for one, colour in zip(studied, plots.COLOURS * len(studied)):
        axis.plot(one.arrays["scores"], one.arrays["scores_learned"], "o", ms=4, color=colour)
    found = over_seeds([one.metrics["learned_theory_score_correlation"].mean for one in studied])
    axis.set(xlabel=f"head score, theory at {width}", ylabel="head score of the trained U")
    error = "" if np.isnan(found.sem) else f" +- {found.sem:.2f}"
    axis.set_title(f"correlation {found.mean:.2f}{error}; a colour a network", fontsize=9)


def _pruning(axis, studied, sets) -> None:
    ends = []
    for name, colour in zip(sets, plots.COLOURS):
        for order, style in (("low_first", "-"), ("high_first", ":")):
            rows = np.stack([one.arrays[f"{name}/{order}"] for one in studied])
            error = rows.std(0) / max(len(rows) - 1, 1) ** 0.5
            axis.errorbar(
                range(rows.shape[1]), rows.mean(0), error, color=colour, ls=style, capsize=2,
                label=f"{name}, {order.replace('_', ' ')}",
            )  # fmt: skip
            if name == "test":
                ends.append(rows.mean(0)[rows.shape[1] // 2])
    axis.axhline(0.5, color="0.3", ls=":", lw=1)
    axis.set(xlabel="heads pruned, in the order of their scores", ylabel="accuracy")
    axis.set_title(
        f"half of the prunable heads gone: {100 * ends[0]:.1f} %\n(lowest scores first) or "
        f"{100 * ends[1]:.1f} % (highest first)",
        fontsize=9,
    )
    axis.legend(fontsize=7)
