"""The figure of a run: training loss and validation accuracy against the step."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxformer.report import figure_style
from jaxformer.report.figure_style import COLOURS

Rows = Sequence[Mapping[str, Any]]


def trivial_lines(result: Mapping[str, Any]) -> dict[str, float]:
    """The scores of trivial predictors that belong beside training losses and validation scores.

    A predictor scores otherwise on validation examples than on the test set where the two sets have
    other examples. Older results have its scores on the test set only: of these the losses remain,
    and with a split by hash, which gives both sets one distribution, the others too.

    Args:
      result: the content of a result.json.
    """
    test = result["baselines"]
    losses = {name: value for name, value in test.items() if name.endswith("_loss")}
    validation = result.get("validation_baselines")
    if validation is None:
        is_by_hash = result["config"].get("data", {}).get("split") == "hash"
        return dict(test) if is_by_hash else losses
    return {name: losses.get(name, value) for name, value in validation.items()}


@figure_style.styled
def curves(
    runs: Mapping[str, Rows],
    baselines: Mapping[str, float],
    chosen: Mapping[str, Sequence[bool]] | None = None,
    figure: Any = None,
    title: str = "",
    names: Mapping[str, str] | None = None,
) -> Any:
    """Returns a matplotlib figure with a colour for each run and a line for each member.

    Runs that logged the attention entropy get a third panel.

    Args:
      runs: {label: rows of a metrics.jsonl}.
      baselines: `trivial_lines` of a result; the first four become horizontal lines.
      chosen: {label: which members to draw}; all members of other runs are drawn.
      figure: an empty figure to draw on.
      title: the line above the panels; by default the last validation accuracy of each run.
      names: the names of baselines in the legend; by default theirs, without underscores.
    """
    has_entropy = any("attention_entropy" in row for rows in runs.values() for row in rows)
    figure, axes = figure_style.panels(1, 2 + has_entropy, (figure_style.PAGE, 1.8), figure)
    left, right, *more = axes[0]
    panels = [(left, "loss"), (right, "validation")]
    for axis in more:
        panels.append((axis, "attention_entropy"))
        axis.set(xlabel="training step", ylabel=r"attention entropy / $\ln T$", ylim=(0, 1.02))
    line_counts, legend = {}, {}
    for i, (label, rows) in enumerate(runs.items()):
        colour = COLOURS[i % len(COLOURS)]
        for axis, name in panels:
            steps, values = _series(rows, name)
            if len(steps):
                values = values[:, list(chosen[label])] if chosen and label in chosen else values
                lines = axis.plot(steps, values, color=colour, alpha=0.75, lw=1)
                line_counts[label] = len(lines)
                legend.setdefault(label, lines[0])
    for (name, value), dashes in zip(baselines.items(), (":", "--", "-.", ":"), strict=False):
        axis = left if name.endswith("_loss") else right
        label = (names or {}).get(name, name.replace("_", " "))
        line = axis.axhline(value, color="0.4", ls=dashes, lw=1)
        legend[f"{label} {value:.3g}"] = line
    left.set(xlabel="training step", ylabel="training loss (nats a token)")
    losses = np.concatenate([np.ravel(line.get_ydata()) for line in left.lines] or [np.ones(1)])
    if np.nanmax(losses, initial=0) > 10 * np.nanmin(losses, initial=np.inf):  # over a decade
        left.set_yscale("log")
    highest = max((max(line.get_ydata(), default=0) for line in right.lines), default=1)
    top = 1.2 * highest if highest < 0.5 else 1.02
    right.set(xlabel="training step", ylabel="validation accuracy", ylim=(-0.02 * top, top))
    note = _note(line_counts, bool(chosen))
    figure_style.add_finding(
        figure, title or _default_title(runs, chosen), note, ([*legend.values()], [*legend])
    )
    return figure


def _note(line_counts: Mapping[str, int], is_chosen: bool) -> str:
    """Returns the sentence that explains what a line is; "" if each run has one."""
    if len({*line_counts.values()}) > 1:
        counts = ", ".join(f"{n} of {label}" for label, n in line_counts.items())
        return f"A line is a {'seed' if is_chosen else 'member'}: {counts}."
    n = max(line_counts.values(), default=1)
    members = "seeds" if is_chosen else "members (seeds and learning rates)"
    return f"A line is one of {n} {members}." if n > 1 else ""


def _series(rows: Rows, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns steps and (steps, members) values; the null of a diverged member becomes a gap."""
    rows = [row for row in rows if name in row]
    values = [row[name]["accuracy"] if name == "validation" else row[name] for row in rows]
    return np.array([row["step"] for row in rows]), np.array(values, float)


def _default_title(runs: Mapping[str, Rows], chosen: Mapping[str, Sequence[bool]] | None) -> str:
    """Returns the last validation accuracy of each run, averaged over its chosen members."""
    accuracies = []
    for label, rows in runs.items():
        _, values = _series(rows, "validation")
        if len(values):
            is_drawn = chosen[label] if chosen and label in chosen else [True] * values.shape[1]
            accuracies.append(f"{label} {100 * np.nanmean(values[-1][list(is_drawn)]):.1f} %")
    return "Validation accuracy at the end: " + ", ".join(accuracies)
