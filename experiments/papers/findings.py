"""A sentence and a chart for each paper, with the numbers of our records.

The top of the page shows them, in the order of "Five findings" in README.md.
"""

from collections.abc import Callable
from typing import NamedTuple

from experiments.ledger.ledger import Row
from experiments.ledger.rules import NOT_HELD
from experiments.papers import finding_charts as charts
from experiments.papers import row_numbers
from experiments.papers.row_numbers import baseline, number

LEARNS_LITTLE = " learns no more than frequencies"  # the end of two sentences of Figure 1f


class Sentence(NamedTuple):
    """Functions that make the sentence and the chart of a paper from a ledger row."""

    paper: str  # a key of PAPERS
    item: str  # "Table 2, retrieval"
    say: Callable[[Row], str]
    chart: Callable[[Row], charts.Chart]


def sentence(of: Sentence, row: Row) -> str:
    """Returns the sentence; "" if one of its runs is missing."""
    try:
        return of.say(row)
    except KeyError:
        return ""


def chart(of: Sentence, row: Row) -> charts.Chart | None:
    """Returns the chart; None if one of its runs is missing."""
    try:
        return of.chart(row)
    except KeyError:
        return None


def freezing(row: Row) -> str:
    mixit = row_numbers.longest(row, "mixit")
    shares = {n: number(row, n, "accuracy").percent() for n in ("standard", "frozen_qk", mixit)}
    guess = baseline(row, "standard", "in_context_guess")
    return (
        "A transformer whose random queries and keys are never trained looks up "
        f"{shares['frozen_qk']} % of the facts in its context; one that is trained whole "
        f"{shares['standard']} %. With fixed random mixing in place of attention it is "
        f"{shares[mixit]} % after {row.records[mixit].steps:,} steps, where guessing a value of "
        f"the context gives {100 * guess:.1f} %."
    )


def stochastic_equation(row: Row) -> str:
    trace, correlation = (
        number(row, "paths", f"ks/{name}/tau=1/n=200").mean for name in ("log_trace", "correlation")
    )
    return (
        "The covariance of tokens in deep networks of random mixing follows a stochastic "
        "differential equation (the paper's, with two misprints corrected). In networks of width "
        "200 and depth 200 the distributions of its trace and of the correlation of two tokens "
        f"differ from the equation's by {trace:.4f} and {correlation:.4f} (Kolmogorov distance: 0 "
        "for equal distributions, 1 for disjoint ones)."
    )


def trainability(row: Row) -> str:
    alike, few, between = (
        number(row, start, "loss") for start in ("rank_collapse", "entropy_collapse", "trainable")
    )
    letters, pairs = (baseline(row, "trainable", f"{name}_loss") for name in ("unigram", "bigram"))
    failed = (f.text for f in row.findings if f.verdict == NOT_HELD)
    learned = " and in ".join(
        text.removesuffix(LEARNS_LITTLE) for text in failed if text.endswith(LEARNS_LITTLE)
    )
    exception = (
        f" In the paper collapsed networks fail to train; ours in {learned} learn something."
    )
    return (
        "Deep networks whose tokens all start alike (rank collapse) have a test loss of "
        f"{alike} nats a character after {row.records['trainable'].steps:,} steps, those whose "
        f"queries attend to few tokens (entropy collapse) {few}, and those that "
        f"start between the two {between}. Counting letters alone gives {letters:.3g}, the best "
        f"possible answer, from the frequencies of pairs of letters, {pairs:.3g}."
        f"{exception if learned else ''}"
    )


def noise(row: Row) -> str:
    whole, right = (number(row, "run", f"p_correct{cut}") for cut in ("", "_without_f2"))
    before, after = (number(row, "run", f"p_noise{cut}") for cut in ("", "_without_f2"))
    width = row.records["run"].config["model"]["width"]
    return (
        f"In a transformer of width {width} the last feed-forward layer (F2) holds the noise. "
        "Replace it by zero, and the probability of the right answer goes from "
        f"{whole.percent()} % to {right.percent()} %, that of the noise from {before.percent()} % "
        f"to {after.percent()} %."
    )


def order_parameter(row: Row) -> str:
    good, denoising, both = (
        number(row, "sampled", f"U/{name}")
        for name in ("good,good", "denoising,denoising", "good,denoising")
    )
    accuracy = number(row, "sampled", "accuracy")
    limit = baseline(row, "sampled", "accuracy_gp_limit")
    width = row.records["sampled"].config["posterior"]["width"][0]
    return (
        "A network of attention alone is a sum over paths; a path takes one head in each layer. "
        f"Averaged over the posterior of its weights (Bayesian), a network of width {width} "
        "subtracts the path that reads only noise (denoising) from the one that computes the "
        "answer (good): the order parameter, which weights pairs of paths, is "
        f"{both} between them, below zero, and {good} for the good and {denoising} for the "
        "denoising one. On this one data set the network classifies "
        f"{accuracy.percent()} % of new sequences, one of infinite width {100 * limit:.1f} %."
    )


FINDINGS = (
    Sentence("mixit", "Table 2, retrieval", freezing, charts.freezing),
    Sentence("random_attention", "Theorem 2.1", stochastic_equation, charts.stochastic_equation),
    Sentence("two_failure_modes", "Figure 1f", trainability, charts.trainability),
    Sentence("associations", "Figure 3, the paper's sizes", noise, charts.noise),
    Sentence("attention_paths", "Figure 2c, bottom", order_parameter, charts.order_parameter),
)
