"""Figures of records. A figure reads files, it never trains."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

# Okabe and Ito: told apart by colour-blind readers too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def curves(
    file: Path,
    runs: Mapping[str, Sequence[Mapping[str, Any]]],
    baselines: Mapping[str, float],
    chosen: Mapping[str, Sequence[bool]] | None = None,
) -> None:
    """Training loss and validation accuracy against the step, one colour a run, one line a member.

    `runs` maps a label to the rows of a metrics.jsonl; `chosen`, if given, to the members to show.
    Runs that probed the attention entropy get a panel of it.
    """
    plt = pyplot()
    probed = any("attention_entropy" in row for rows in runs.values() for row in rows)
    figure, axes = plt.subplots(1, 2 + probed, figsize=(9 + 4 * probed, 3.4), layout="constrained")
    left, right, *more = axes
    panels = [(left, "loss"), (right, "validation")]
    for axis in more:
        panels.append((axis, "attention_entropy"))
        axis.set(xlabel="training step", ylabel=r"attention entropy / $\ln T$", ylim=(0, 1.02))
    for colour, (label, rows) in zip(_cycle(len(runs)), runs.items(), strict=True):
        for axis, key in panels:
            steps, values = _series(rows, key)
            if len(steps):
                values = values[:, list(chosen[label])] if chosen and label in chosen else values
                axis.plot(steps, values, color=colour, alpha=0.75, lw=1.2)
                axis.plot([], [], color=colour, label=label)
    for (name, value), style in zip(baselines.items(), (":", "--", "-.", ":"), strict=False):
        axis = left if name.endswith("_loss") else right
        axis.axhline(value, color="0.4", ls=style, lw=1, label=name.replace("_", " "))
    left.set(xlabel="training step", ylabel="training loss (nats a token)", yscale="log")
    right.set(xlabel="training step", ylabel="validation accuracy", ylim=(-0.02, 1.02))
    if any(name.endswith("_loss") for name in baselines):
        left.legend(fontsize=8, loc="best")
    right.legend(fontsize=8, loc="best")
    figure.suptitle(_finding(runs, chosen), fontsize=10)
    save(figure, file)


def by_layer(file: Path, runs: Mapping[str, Mapping[str, Any]]) -> None:
    """Metrics named "statistic/block_i/..." against the layer, one panel a statistic."""
    plt = pyplot()
    names = sorted({name.split("/")[0] for metrics in runs.values() for name in metrics})
    figure, axes = plt.subplots(
        1, len(names), figsize=(3.2 * len(names), 3), layout="constrained", squeeze=False
    )
    for axis, statistic in zip(axes[0], names, strict=True):
        for colour, (label, metrics) in zip(_cycle(len(runs)), runs.items(), strict=True):
            points = [
                (int(name.split("/")[1].removeprefix("block_")) + 1, value)
                for name, value in metrics.items()
                if name.startswith(f"{statistic}/block_")
            ]
            layers, values = zip(*sorted(points), strict=True)
            axis.errorbar(
                layers,
                [v.mean for v in values],
                [v.sem for v in values],
                color=colour,
                marker="o",
                ms=4,
                capsize=3,
                label=label,
            )
        axis.set(xlabel="layer", ylabel=statistic.replace("_", " "), xticks=layers)
        axis.set_title(f"{values[-1].mean:.3g} after layer {layers[-1]}", fontsize=10)
    axes[0, 0].legend(fontsize=8)
    save(figure, file)


def pyplot():
    """matplotlib without a screen."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def save(figure, file: Path) -> None:
    """Writes the figure whole or not at all."""
    temporary = file.with_name(f".{file.name}")
    figure.savefig(temporary, dpi=150, format=file.suffix[1:])
    temporary.replace(file)
    pyplot().close(figure)


def _series(rows, key) -> tuple[np.ndarray, np.ndarray]:
    """Steps and (steps, members) values; null, where a member has diverged, is a gap."""
    kept = [row for row in rows if key in row]
    values = [row[key]["accuracy"] if key == "validation" else row[key] for row in kept]
    return np.array([row["step"] for row in kept]), np.array(values, float)


def _finding(runs, chosen) -> str:
    """Where each run ends: the mean over its seeds (over all members while none is chosen)."""
    words = []
    for label, rows in runs.items():
        _, values = _series(rows, "validation")
        if len(values):
            kept = chosen[label] if chosen and label in chosen else [True] * values.shape[1]
            words.append(f"{label} {100 * np.nanmean(values[-1][list(kept)]):.1f} %")
    return "validation accuracy at the end: " + ", ".join(words)


def _cycle(n: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(n)]
