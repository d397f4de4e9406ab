"""The picture of a run: training loss and validation accuracy against the step."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxformer.runtime import figure_style
from jaxformer.runtime.figure_style import COLOURS


@figure_style.styled
def curves(
    runs: Mapping[str, Sequence[Mapping[str, Any]]],
    baselines: Mapping[str, float],
    chosen: Mapping[str, Sequence[bool]] | None = None,
    figure: Any = None,
    found: str = "",
) -> Any:
    """A matplotlib figure: one colour a run, one line a member.

    `runs` maps a label to the rows of a metrics.jsonl; `chosen`, if given, to the members to show.
    Runs that probed the attention entropy get a panel of it. `figure`: an empty one to draw on;
    `found`: what stands above, in place of where each run ends.
    """
    probed = any("attention_entropy" in row for rows in runs.values() for row in rows)
    figure, axes = figure_style.panels(1, 2 + probed, (figure_style.PAGE, 1.8), figure)
    left, right, *more = axes[0]
    panels = [(left, "loss"), (right, "validation")]
    for axis in more:
        panels.append((axis, "attention_entropy"))
        axis.set(xlabel="training step", ylabel=r"attention entropy / $\ln T$", ylim=(0, 1.02))
    many, named = {}, {}
    for i, (label, rows) in enumerate(runs.items()):
        colour = COLOURS[i % len(COLOURS)]
        for axis, key in panels:
            steps, values = _series(rows, key)
            if len(steps):
                values = values[:, list(chosen[label])] if chosen and label in chosen else values
                lines = axis.plot(steps, values, color=colour, alpha=0.75, lw=1)
                many[label], named = len(lines), {label: lines[0], **named}
    named = {label: named[label] for label in runs if label in named}
    for (name, value), dashes in zip(baselines.items(), (":", "--", "-.", ":"), strict=False):
        axis, words = left if name.endswith("_loss") else right, name.replace("_", " ")
        named[f"{words} {value:.3g}"] = axis.axhline(value, color="0.4", ls=dashes, lw=1)
    left.set(xlabel="training step", ylabel="training loss (nats a token)")
    losses = np.concatenate([np.ravel(line.get_ydata()) for line in left.lines] or [np.ones(1)])
    if np.nanmax(losses, initial=0) > 10 * np.nanmin(losses, initial=np.inf):  # decades to show
        left.set_yscale("log")
    highest = max((max(line.get_ydata(), default=0) for line in right.lines), default=1)
    top = 1.02 if not highest < 0.5 else 1.2 * highest
    right.set(xlabel="training step", ylabel="validation accuracy", ylim=(-0.02 * top, top))
    what = "seeds" if chosen else "members (seeds and learning rates)"
    most = max(many.values(), default=1)
    beware = f"A line is one of {most} {what}." if most > 1 else ""
    if len({*many.values()}) > 1:
        told = ", ".join(f"{n} of {label}" for label, n in many.items())
        beware = f"A line is a {'seed' if chosen else 'member'}: {told}."
    figure_style.headed(
        figure, found or _finding(runs, chosen), beware, ([*named.values()], [*named])
    )
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
    return "Validation accuracy at the end: " + ", ".join(words)
