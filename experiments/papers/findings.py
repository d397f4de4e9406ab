"""The five papers in a sentence each, with the numbers of our records: what the page opens with.

A sentence takes the row of its table or figure; the row's verdict stands beside it. It says numbers
and leaves the judgement to the verdict, so that it stays true when other runs land.
"""

from collections.abc import Callable
from typing import NamedTuple

from experiments.ledger.ledger import Row
from experiments.ledger.statistics import Number, of_record


class Sentence(NamedTuple):
    """What to say of a paper, from the records of one of its tables or figures."""

    paper: str  # a key of PAPERS
    item: str  # "Table 2, retrieval"
    say: Callable[[Row], str]


def sentence(of: Sentence, row: Row) -> str:
    """The sentence, or "" if a run behind it is missing."""
    try:
        return of.say(row)
    except KeyError:
        return ""


def number(row: Row, cell: str, metric: str) -> Number:
    """A metric of a cell with its error; KeyError if it was not measured."""
    record = row.records[cell]
    value = record.metrics[metric]
    if value["mean"] is None:
        raise KeyError(metric)
    return of_record(value, record.members, metric)


def baseline(row: Row, cell: str, name: str) -> float:
    """A trivial predictor's score, or a theory's number, on the very set of a cell."""
    value = row.records[cell].baselines[name]
    if value is None:
        raise KeyError(name)
    return value


def freezing(row: Row) -> str:
    shares = {n: number(row, n, "accuracy").percent() for n in ("standard", "frozen_qk", "mixit")}
    guess = baseline(row, "standard", "in_context_guess")
    return (
        "A transformer whose random queries and keys are never trained looks up "
        f"{shares['frozen_qk']} % of the facts in its context; one that is trained whole "
        f"{shares['standard']} %. With fixed random mixing in place of attention it is "
        f"{shares['mixit']} %, where guessing a value of the context gives {100 * guess:.1f} %."
    )


def stochastic_equation(row: Row) -> str:
    trace, correlation = (
        number(row, "paths", f"ks/{name}/tau=1/n=200").mean for name in ("log_trace", "correlation")
    )
    return (
        "The covariance of tokens in deep networks of random mixing follows a stochastic "
        "differential equation: in networks of width 200 and depth 200 the laws of its trace and "
        f"of the correlation of two tokens differ from the equation's by {trace:.4f} and "
        f"{correlation:.4f} (Kolmogorov distance: 0 is the same law, 1 another)."
    )


def trainability(row: Row) -> str:
    side = number(row, "diagram", "exact_on_their_side")
    edge = number(row, "diagram", "critical_alpha_at_beta_0").mean
    figure = row.records["diagram"].config["figure"]
    return (
        f"After {figure['layers']} layers all tokens of a transformer at initialisation are alike "
        f"unless its residual strength alpha is above {edge:.2f}: of the networks built on both "
        f"sides of the predicted line, {100 * side.mean:.0f} % do what it says."
    )


def noise(row: Row) -> str:
    whole, right = (number(row, "recall", f"p_correct{cut}") for cut in ("", "_without_f2"))
    before, after = (number(row, "recall", f"p_noise{cut}") for cut in ("", "_without_f2"))
    return (
        "The last feed-forward layer holds the noise. Cut out, the probability of the right answer "
        f"goes from {whole.percent()} % to {right.percent()} %, that of the noise from "
        f"{before.percent()} % to {after.percent()} %."
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
        f"A Bayesian transformer of width {width} subtracts its denoising path from the good one: "
        f"in the order parameter U they have {good} and {denoising}, and {both} between them. "
        f"It classifies {accuracy.percent()} % of new sequences; the Gaussian-process limit "
        f"{100 * limit:.1f} %."
    )


FINDINGS = (
    Sentence("mixit", "Table 2, retrieval", freezing),
    Sentence("random_attention", "Theorem 2.1", stochastic_equation),
    Sentence("two_failure_modes", "Figure 1c", trainability),
    Sentence("associations", "Figure 3", noise),
    Sentence("attention_paths", "Figure 2c, bottom", order_parameter),
)
