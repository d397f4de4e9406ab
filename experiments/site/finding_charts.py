"""Dot charts of the five findings: a chart for each paper, with the numbers of its finding."""

from collections.abc import Callable
from typing import NamedTuple

from experiments.papers.sentences import Runs, baseline, longest, number
from jaxformer.core.text_format import with_error
from jaxformer.report import svg
from jaxformer.stats.differences import Number

CARD_WIDTH = 330  # in the units of svg.py


class Chart(NamedTuple):
    """A dot chart with a line for each dot, and its legend."""

    axis: svg.Axis
    dots: list[svg.Dot]
    theory: str = ""  # the legend of the diamonds; "" without diamonds
    level: str = ""  # the legend of the dashed lines; "" without lines

    def html(self) -> str:
        numbers = ", ".join(
            f"{d.label} {with_error(d.measured, d.error or None)}" for d in self.dots
        )
        drawing = svg.dot_chart(f"{self.axis.label}: {numbers}.", self.dots, self.axis, CARD_WIDTH)
        ours = "ours" + "; bars are standard errors" * any(d.error for d in self.dots)
        return (
            f'<div class="numbers">{drawing}{svg.dot_legend(ours, self.theory, self.level)}</div>'
        )


def dot(
    label: str, measured: Number, theory: float | None = None, level: float | None = None
) -> svg.Dot:
    """Returns the dot of a number. An unknown error, which is nan, has no bar."""
    error = measured.error if measured.error > 0 else 0.0
    return svg.Dot(label, measured.mean, error, theory, level)


def freezing(runs: Runs) -> Chart:
    """Returns a chart of the accuracy in retrieval of networks with frozen parts."""
    guess, dots = baseline(runs, "standard", "in_context_guess"), []
    for variant in ("standard", "frozen_mlp", "frozen_qk", "mixit"):
        if (cell := longest(runs, variant)) in runs:
            dots.append(dot(variant, number(runs, cell, "accuracy"), level=guess))
    axis = svg.Axis("share of look-ups that are right", limits=(0, 1))
    return Chart(axis, dots, level="a guess")


def stochastic_equation(runs: Runs) -> Chart:
    """Returns a chart of the distance between wide networks and the stochastic equation.

    A line marks the distance that two samples of one distribution rarely exceed.
    """
    same_law = number(runs, "paths", "ks_noise").mean
    dots = [
        dot(f"{label}, n = {n}", number(runs, "paths", f"ks/{name}/tau=1/n={n}"), level=same_law)
        for name, label in (("log_trace", "size"), ("correlation", "correlation"))
        for n in (50, 200, 500)
        if f"ks/{name}/tau=1/n={n}" in runs["paths"].metrics
    ]
    axis = svg.Axis("Kolmogorov distance", limits=(0, 0.05))
    return Chart(axis, dots, level="two samples of one distribution")


def collapse(runs: Runs) -> Chart:
    """Returns a chart of the loss of networks that start in each regime.

    A line marks the loss of a prediction from the frequencies of letters.
    """
    unigram_loss = baseline(runs, "trainable", "unigram_loss")
    starts = {
        "rank collapse": "rank_collapse",
        "entropy collapse": "entropy_collapse",
        "between the two": "trainable",
    }
    dots = [
        dot(label, number(runs, start, "loss"), level=unigram_loss)
        for label, start in starts.items()
    ]
    axis = svg.Axis("test loss, nats a character", limits=(2, 3.5))
    return Chart(axis, dots, level="counting letters")


def noise(runs: Runs) -> Chart:
    """Returns a chart of the probabilities of the right token and of the noise token.

    The network is whole, without the MLP F1, or without the MLP F2.
    """
    cuts = {"whole": "", "without F1": "_without_f1", "without F2": "_without_f2"}
    dots = [
        dot(f"{label}, {cut}", number(runs, "run", metric + suffix))
        for metric, label in (("p_correct", "right"), ("p_noise", "noise"))
        for cut, suffix in cuts.items()
    ]
    return Chart(svg.Axis("probability of the token", limits=(0, 1)), dots)


def order_parameter(runs: Runs) -> Chart:
    """Returns a chart of five entries of the order parameter, sampled and by the theory."""
    width, dots = runs["sampled"].config["posterior"]["width"][0], []
    paths = {name: f"{name},{name}" for name in ("good", "denoising", "a1", "a2")}
    for label, path in (paths | {"good with denoising": "good,denoising"}).items():
        theory = number(runs, "U", f"U/N={width}/{path}").mean if "U" in runs else None
        dots.append(dot(label, number(runs, "sampled", f"U/{path}"), theory))
    axis = svg.Axis(f"order parameter, width {width}")
    return Chart(axis, dots, theory="theory, for wide networks" if "U" in runs else "")


# {paper: the function that draws the chart of its finding}
CHARTS: dict[str, Callable[[Runs], Chart]] = {
    "mixit": freezing,
    "random_attention": stochastic_equation,
    "two_failure_modes": collapse,
    "associations": noise,
    "attention_paths": order_parameter,
}
