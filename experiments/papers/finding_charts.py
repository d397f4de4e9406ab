"""Chart of each of the five findings, with the numbers of its sentence."""

from collections.abc import Mapping
from typing import NamedTuple

from experiments.ledger.ledger import Row
from experiments.ledger.statistics import Number
from experiments.papers.row_numbers import baseline, longest, number


class Dot(NamedTuple):
    ours: Number
    theory: float | None = None  # drawn as a diamond
    level: float | None = None  # drawn as a dashed line


class Chart(NamedTuple):
    """A dot chart with a line for each dot."""

    axis: str
    dots: Mapping[str, Dot]
    theory: str = ""  # legend of the diamonds
    level: str = ""  # legend of the dashed lines
    limits: tuple[float, float] | None = None


def freezing(row: Row) -> Chart:
    guess = baseline(row, "standard", "in_context_guess")
    names = ("standard", "frozen_mlp", "frozen_qk", "mixit")
    cells = {name: longest(row, name) for name in names}
    dots = {name: Dot(number(row, cell, "accuracy"), level=guess) for name, cell in cells.items()}
    return Chart("share of look-ups that are right", dots, level="a guess", limits=(0, 1))


def stochastic_equation(row: Row) -> Chart:
    noise = number(row, "paths", "ks_noise").mean
    dots = {
        f"{said}, n = {n}": Dot(number(row, "paths", f"ks/{name}/tau=1/n={n}"), level=noise)
        for name, said in (("log_trace", "size"), ("correlation", "correlation"))
        for n in (50, 200, 500)
    }
    level = "two samples of one law"
    return Chart("Kolmogorov distance", dots, level=level, limits=(0, 0.05))


def trainability(row: Row) -> Chart:
    letters = baseline(row, "trainable", "unigram_loss")
    starts = {
        "rank collapse": "rank_collapse",
        "entropy collapse": "entropy_collapse",
        "between the two": "trainable",
    }
    dots = {said: Dot(number(row, start, "loss"), level=letters) for said, start in starts.items()}
    return Chart("test loss, nats a character", dots, level="counting letters", limits=(2, 3.5))


def noise(row: Row) -> Chart:
    cuts = {"whole": "", "without F1": "_without_f1", "without F2": "_without_f2"}
    dots = {
        f"{said}, {cut}": Dot(number(row, "run", metric + suffix))
        for metric, said in (("p_correct", "right"), ("p_noise", "noise"))
        for cut, suffix in cuts.items()
    }
    return Chart("probability of the token", dots, limits=(0, 1))


def order_parameter(row: Row) -> Chart:
    width = row.records["sampled"].config["posterior"]["width"][0]
    paths = {name: f"{name},{name}" for name in ("good", "denoising", "a1", "a2")}
    paths |= {"good with denoising": "good,denoising"}
    dots = {
        said: Dot(number(row, "sampled", f"U/{path}"), number(row, "U", f"U/N={width}/{path}").mean)
        for said, path in paths.items()
    }
    return Chart(f"order parameter, width {width}", dots, theory="theory, for wide networks")
