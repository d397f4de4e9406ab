"""The picture of a run: training loss and validation accuracy against the step."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

# Okabe and Ito: told apart by colour-blind readers too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def curves(
    runs: Mapping[str, Sequence[Mapping[str, Any]]],
    baselines: Mapping[str, float],
    chosen: Mapping[str, Sequence[bool]] | None = None,
    figure: Any = None,
) -> Any:
    """A matplotlib figure: one colour a run, one line a member.

    `runs` maps a label to the rows of a metrics.jsonl; `chosen`, if given, to the members to show.
    Runs that probed the attention entropy get a panel of it. `figure`: an empty one to draw on.
    """
    from matplotlib.figure import Figure  # no screen is needed, and none is opened

    probed = any("attention_entropy" in row for rows in runs.values() for row in rows)
    figure = figure or Figure()
    figure.set(figwidth=9 + 4 * probed, figheight=3.4, layout_engine="constrained")
    axes = figure.subplots(1, 2 + probed)
    left, right, *more = axes
    panels = [(left, "loss"), (right, "validation")]
    for axis in more:
        panels.append((axis, "attention_entropy"))
        axis.set(xlabel="training step", ylabel=r"attention entropy / $\ln T$", ylim=(0, 1.02))
    for i, (label, rows) in enumerate(runs.items()):
        colour = COLOURS[i % len(COLOURS)]
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
    return figure


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
