"""Text and figures of the advisor.

An answer (`diagnosis.judge`) describes one network at initialisation. A comparison
(`layer_comparison`) has the prediction and the measurements of a run or a published model by layer.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.report import figure_style
from jaxformer.training.ranges import outside
from theory.command_output import BLUE, ORANGE, PAGE, RED, new_figure, save_figure

# Columns of a comparison: the prediction, and measurements at the first and present weights.
KINDS = ("predicted", "start", "now")
# Quantities of a comparison and their formats in the table.
FORMATS = {"cosine": "9.4f", "keys": "9.2f", "beta": "9.3f", "gradient": "9.3g"}
# Quantities that have a range and are drawn, with their axis labels.
LABELS = {
    "cosine": "cosine of two tokens",
    "keys": "keys that a query sees",
    "gradient": "gradient, last layer = 1",
}
WIDTH_PER_LAYER = 8  # the theory of wide networks needs a width of at least this times the depth


# One network at initialisation -------------------------------------------------------------------


def answer_text(answer: dict[str, Any]) -> str:
    """Returns the report on one network: network, verdict, numbers with ranges, what to change."""
    layers, cosine, keys = answer["layers"], answer["cosine"], answer["keys"]
    entropy, gradient = answer["entropy_fraction"], answer["gradient"]
    low, high = answer["gradient_range"]
    shown_layers = sorted({0, 1, *(round(layers * k / 6) for k in range(1, 7))})
    keys_from_0 = [math.nan, *keys]  # the embedding, layer 0, has no keys and is not shown
    model_type = f"{answer['model_type']}: " if answer["model_type"] else ""
    lines = [
        ("judged", f"{model_type}{answer['judged']}, rho0 = {answer['rho0']:.4g}"),
        ("", f"{layers} layers, width {answer['width']}, {answer['heads']} heads, "
             f"{answer['length']} tokens"),
        ("assumed", "weights are Gaussian, drawn once per matrix; biases and gains are initial"),
        *(("assumed", line) for line in answer["assumptions"]),
        *_narrow_warning(answer),
        ("regime", answer["regime"]),
        ("tokens alike", f"cosine {cosine[-1]:.4f} after the last layer; "
                         f"range: at most {1 - answer['epsilon']:g}"),
        ("keys seen", f"{min(keys):.1f} by a query of the narrowest layer; range: at least "
                      f"{answer['least_keys']:g}"),
        ("gradient", f"first block / last block {answer['gradient_ratio']:.3g}; range: "
                     f"{low:g} to {high:g}"),
        ("layers", f"blocks 1 to {layers} are judged; 0 is the embedding, which is not"),
        ("cosine by layer", _by_layer(cosine, shown_layers, ".4f")),
        ("keys by layer", _by_layer(keys_from_0, shown_layers[1:], ".1f")),
        ("gradient by layer", _by_layer(gradient, shown_layers, ".3g")),
        ("beta", f"{answer['beta']:.4f}   (the paper's formula: "
                 f"{answer['beta_by_the_papers_formula']:.4f})"),
        ("entropy / ln T", f"first layer {entropy[0]:.4f}, last layer {entropy[-1]:.4f}"),
        ("rank collapse", _boundary("alpha", answer["critical_alpha"], answer["alpha"])),
        ("entropy collapse", _boundary("beta", answer["critical_beta"], answer["beta"])),
        ("variances", f"sigma_V^2 {answer['sigma_v2']:.4g}, sigma_W^2 "
                      f"{answer['sigma_w2']:.4g}, sigma_b^2 {answer['sigma_b2']:.4g}"),
        *(("change", line) for line in answer["advice"]),
    ]  # fmt: skip
    if solved := answer.get("solved"):
        is_outside = not low <= solved["gradient_ratio"] <= high
        note = " (out of range)" if is_outside else ""
        lines.append(
            ("solved", f"{solved['what']} x {solved['factor']:.4g}: {_three_numbers(solved)}{note}")
        )
        lines += [(f"  {target}", line) for target, line in solved["lines"].items()]
    if checked := answer.get("checked"):
        numbers = _three_numbers(checked, error=f" +- {checked['cosine_error']:.4f}")
        predicted = f"predicted {checked['predicted_cosine']:.4f}"
        lines.append(("measured", f"{checked['seeds']} networks: {numbers}; {predicted}"))
    if widths := answer.get("widths"):
        lines += [(f"width {row['width']}", _width_row(row)) for row in widths["rows"]]
        drifting = ", ".join(widths["drifts"])
        summary = (
            f"{drifting} drift with the width" if drifting else "nothing drifts with the width"
        )
        lines.append(("width", summary))
    lines += [("next", line) for line in answer["next"]]
    return "\n".join(f"{name:<18}{text}" for name, text in lines)


def plot_answer(answer: dict[str, Any], path: Path, quiet: bool) -> None:
    """Writes a figure of cosine, entropy and gradient by layer."""
    figure, (left, right) = new_figure(2, (PAGE, 2.0))
    layers = np.arange(answer["layers"] + 1)
    left.plot(layers, answer["cosine"], color=BLUE, lw=1.6, label=r"cosine of two tokens, $\rho$")
    style = {
        "color": ORANGE,
        "lw": 3.5,
        "alpha": 0.7,
        "label": r"attention entropy / $\ln T$",
    }
    left.plot(layers[1:], answer["entropy_fraction"], **style)
    left.axhline(1 - answer["epsilon"], color=RED, lw=0.9, ls="--", label=r"collapse, $1-\epsilon$")
    if checked := answer.get("checked"):
        solved = " (solved)" if answer.get("solved") else ""
        label = f"measured, {checked['seeds']} networks{solved}"
        measured = checked["cosine_by_layer"]
        left.plot(np.arange(len(measured)), measured, "o", color=BLUE, ms=3, label=label)
    left.set(xlabel="layer", ylabel="cosine, share of entropy", ylim=(0, 1.04))
    figure_style.label_panel(left, columns=2)
    right.semilogy(layers, answer["gradient"], color=BLUE, lw=1.6)
    right.set(xlabel="layer", ylabel=LABELS["gradient"])
    figure_style.label_panel(right, f"first block / last block {answer['gradient_ratio']:.3g}")
    note = f"At initialisation: {answer['judged']}."
    figure_style.add_finding(figure, answer["regime"].capitalize(), note)
    save_figure(figure, path, quiet=quiet)


def _narrow_warning(answer: dict[str, Any]) -> list[tuple[str, str]]:
    width, layers = answer["width"], answer["layers"]
    if width >= WIDTH_PER_LAYER * layers:
        return []
    return [("not met", f"a width much larger than the depth: {width} and {layers} layers")]


def _by_layer(values: list[float], layers: list[int], form: str) -> str:
    return "  ".join(f"{i}: {values[i]:{form}}" for i in layers)


def _boundary(name: str, edge: float | None, value: float) -> str:
    if edge is None:
        reason = "no alpha prevents it" if name == "alpha" else "no beta causes it"
        return f"{reason} ({name}_c infinite)"
    side = "above" if value >= edge else "below"
    return f"{name}_c {edge:.4f}, {name} is {abs(value - edge):.4f} {side} it"


def _three_numbers(numbers: dict[str, Any], error: str = "") -> str:
    return (
        f"cosine {numbers['cosine']:.4f}{error}, {numbers['keys']:.1f} keys, gradient "
        f"{numbers['gradient_ratio']:.3g}"
    )


def _width_row(row: dict[str, Any]) -> str:
    def entry(name: str, value: float) -> str:
        measured = row["measured"].get(name)
        return f"{name} {value:.3g}" + ("" if measured is None else f" ({measured:.3g} measured)")

    return ", ".join(entry(name, value) for name, value in row["predicted"].items())


# A run or a published model by layer -------------------------------------------------------------


def comparison_text(comparison: dict[str, Any]) -> str:
    """Returns a table with one row per layer and the columns of `KINDS` for each quantity.

    A dash stands for nan or infinity.
    """
    name = comparison["run"] if "run" in comparison else comparison["model"]
    kinds = [kind for kind in KINDS if kind in comparison]
    lines = [f"judged            {name}: {comparison['judged']}, {comparison['length']} tokens"]
    lines += [f"                  {note}" for note in comparison["notes"]]
    for kind in kinds:
        numbers = {quantity: comparison[kind][quantity] for quantity in LABELS}
        problems = outside(**numbers, length=comparison["length"])
        lines += [f"out of range      {kind}: {what}, {text}" for what, text in problems.items()]
    headings = "".join(f"  {quantity + ':':<{10 * len(kinds) - 2}}" for quantity in FORMATS)
    lines.append(f"layer  {headings}".rstrip())
    lines.append("       " + "".join(f"{kind:>10}" for _ in FORMATS for kind in kinds))
    n_rows = len(comparison["predicted"]["cosine"])
    for layer in range(n_rows):
        cells = []
        for quantity, form in FORMATS.items():
            for kind in kinds:
                values = comparison[kind][quantity]
                # The first row is the embedding, where quantities of attention have no value.
                i = layer - (n_rows - len(values))
                if i < 0:
                    cells.append(" " * 9)
                elif math.isfinite(values[i]):
                    cells.append(f"{values[i]:{form}}")
                else:
                    cells.append(f"{'-':>9}")
        lines.append(f"{layer:5d}   {' '.join(cells)}".rstrip())
    return "\n".join(lines)


def comparison_json(comparison: dict[str, Any]) -> str:
    """Returns strict JSON. null replaces nan and infinity, and "not_finite" lists where."""

    def finite(values: list[float]) -> list[float | None]:
        return [value if math.isfinite(value) else None for value in values]

    answer = dict(comparison)
    for kind in KINDS:
        if kind in comparison:
            answer[kind] = {name: finite(values) for name, values in comparison[kind].items()}
    if not_finite := not_finite_quantities(comparison):
        answer["not_finite"] = not_finite
    return json.dumps(answer, allow_nan=False)


def not_finite_quantities(comparison: dict[str, Any]) -> list[str]:
    """Returns measured quantities with nan or infinity, such as "cosine of now from layer 1"."""
    n_rows = len(comparison["predicted"]["cosine"])
    names = []
    for kind in ("start", "now"):
        for name, values in comparison.get(kind, {}).items():
            layers = np.flatnonzero(~np.isfinite(values))
            if len(layers):
                names.append(f"{name} of {kind} from layer {layers[0] + n_rows - len(values)}")
    return names


def plot_comparison(comparison: dict[str, Any], path: Path, quiet: bool) -> None:
    """Writes a figure of cosine, keys and gradient by layer for each of `KINDS`."""
    figure, axes = new_figure(3, (PAGE, 1.9))
    styles: dict[str, Any] = dict(zip(KINDS, ((BLUE, "-"), (ORANGE, "o"), (RED, "s"))))
    kinds = [kind for kind in KINDS if kind in comparison]
    n_rows = len(comparison["predicted"]["cosine"])
    for axis, (quantity, label) in zip(axes, LABELS.items()):
        for kind in kinds:
            values = comparison[kind][quantity]
            colour, mark = styles[kind]
            axis.plot(np.arange(n_rows)[-len(values) :], values, mark, color=colour, label=kind)
        axis.set(xlabel="layer", ylabel=label)
    axes[2].set_yscale("log")
    last = ", ".join(f"{kind} {comparison[kind]['cosine'][-1]:.3g}" for kind in kinds)
    headline = f"Cosine of two tokens after the last block: {last}"
    figure_style.add_finding(figure, headline, f"{comparison['judged']}.", axes[0])
    save_figure(figure, path, quiet=quiet)
