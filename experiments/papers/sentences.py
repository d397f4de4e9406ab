"""Sentences about results with their numbers, for the demo, the page of results and litmus.py.

The function of a sentence takes the runs of one table or figure, by the names of its cells. It
raises KeyError if a run or a number is missing.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from experiments.papers.two_failure_modes.claims_trained import LEARNS_NOTHING
from jaxformer.stats.differences import BELOW, Number, difference
from jaxformer.stats.members import record_number

# Records by cell, or the content of result.json as objects with the same attributes.
Runs = Mapping[str, Any]


class Finding(NamedTuple):
    """The sentence of a paper, and the table or figure whose runs it describes."""

    paper: str  # a key of PAPERS
    item: str  # such as "Table 2, retrieval"
    sentence: Callable[[Runs], str]


def number(runs: Runs, cell: str, metric: str) -> Number:
    """Returns a metric of a cell with its error; raises KeyError if it was not measured."""
    run = runs[cell]
    value = run.metrics[metric]
    if value["mean"] is None:
        raise KeyError(metric)
    return record_number(value, run.members, metric)


def baseline(runs: Runs, cell: str, name: str) -> float:
    """Returns a baseline of a cell: a trivial predictor's score or a theory's number."""
    value = runs[cell].baselines[name]
    if value is None:
        raise KeyError(name)
    return value


def with_more_steps(variant: str) -> str:
    """Returns the name of the cell in which a variant has four times the steps of its config."""
    return f"{variant}, steps x 4"


def longest(cells: Mapping[str, Any], variant: str) -> str:
    """Returns the name of the cell in which a variant was trained longest."""
    longer = with_more_steps(variant)
    return longer if longer in cells else variant


def freezing(runs: Runs) -> str:
    mixit = longest(runs, "mixit")
    shares = {n: number(runs, n, "accuracy").percent() for n in ("standard", "frozen_qk", mixit)}
    guess = baseline(runs, "standard", "in_context_guess")
    sentence = (
        "A transformer whose random queries and keys are never trained looks up "
        f"{shares['frozen_qk']} % of the facts in its context; one that is trained whole "
        f"{shares['standard']} %. With fixed random mixing in place of attention it is "
        f"{shares[mixit]} % after {runs[mixit].steps:,} steps, where guessing a value of "
        f"the context gives {100 * guess:.1f} %."
    )
    memorising = ("mixit, memorisation", "standard, memorisation")
    if not runs.keys() >= {*memorising}:
        return sentence
    fixed, whole = (number(runs, cell, "accuracy").percent() for cell in memorising)
    return f"{sentence} Of random facts fixed mixing memorises {fixed} %, a transformer {whole} %."


def stochastic_equation(runs: Runs) -> str:
    trace, correlation = (
        number(runs, "paths", f"ks/{name}/tau=1/n=200").mean
        for name in ("log_trace", "correlation")
    )
    return (
        "The covariance of tokens in deep networks of random mixing follows a stochastic "
        "differential equation (the paper's, with two misprints corrected). In networks of width "
        "200 and depth 200 the distributions of its trace and of the correlation of two tokens "
        f"differ from the equation's by {trace:.4f} and {correlation:.4f} (Kolmogorov distance: 0 "
        "for equal distributions, 1 for disjoint ones)."
    )


def collapse(runs: Runs) -> str:
    losses = {
        start: number(runs, start, "loss")
        for start in ("rank_collapse", "entropy_collapse", "trainable")
    }
    letters, pairs = (baseline(runs, "trainable", f"{name}_loss") for name in ("unigram", "bigram"))
    # The starts from which training gets below the loss of letter frequencies by a margin.
    learning = [
        start.replace("_", " ")
        for start in ("rank_collapse", "entropy_collapse")
        if difference(losses[start], Number(letters)).verdict(-LEARNS_NOTHING) == BELOW
    ]
    exception = (
        f" In the paper collapsed networks fail to train; ours in {' and in '.join(learning)} "
        "learn something."
    )
    return (
        "Deep networks whose tokens all start alike (rank collapse) have a test loss of "
        f"{losses['rank_collapse']} nats a character after "
        f"{runs['trainable'].steps:,} steps, those whose queries attend to few "
        f"tokens (entropy collapse) {losses['entropy_collapse']}, and those that start between the "
        f"two {losses['trainable']}. Counting letters alone gives {letters:.3g}, the best "
        f"possible answer, from the frequencies of pairs of letters, {pairs:.3g}."
        f"{exception if learning else ''}"
    )


def collapse_border(runs: Runs) -> str:
    layers = runs["diagram"].config["figure"]["layers"]
    border = number(runs, "diagram", "critical_alpha_at_beta_0").mean
    right = number(runs, "diagram", "exact_on_their_side")
    return (
        f"Random networks of {layers} layers make all tokens alike (rank collapse) if their skip "
        f"connections are weaker than {border:.2f}, at uniform attention. Theory predicts this "
        f"border for any attention: {right.percent()} % of the measured networks lie on the "
        "predicted side (those within 5 % of the border are not counted)."
    )


def noise(runs: Runs) -> str:
    correct_full, correct_cut = (
        number(runs, "run", f"p_correct{cut}") for cut in ("", "_without_f2")
    )
    noise_full, noise_cut = (number(runs, "run", f"p_noise{cut}") for cut in ("", "_without_f2"))
    width = runs["run"].config["model"]["width"]
    return (
        f"In a transformer of width {width} the last feed-forward layer (F2) stores the noise. "
        "Replace it by zero, and the probability of the right answer goes from "
        f"{correct_full.percent()} % to {correct_cut.percent()} %, that of the noise from "
        f"{noise_full.percent()} % to {noise_cut.percent()} %."
    )


def order_parameter(runs: Runs) -> str:
    good, denoising, between = (
        number(runs, "sampled", f"U/{name}")
        for name in ("good,good", "denoising,denoising", "good,denoising")
    )
    accuracy = number(runs, "sampled", "accuracy")
    limit = baseline(runs, "sampled", "accuracy_gp_limit")
    width = runs["sampled"].config["posterior"]["width"][0]
    return (
        "A network of attention alone is a sum over paths; a path takes one head in each layer. "
        f"Averaged over the posterior of its weights (Bayesian), a network of width {width} "
        "subtracts the path that reads only noise (denoising) from the one that computes the "
        "answer (good): the order parameter, which weights pairs of paths, is "
        f"{between} between them, below zero, and {good} for the good and {denoising} for the "
        "denoising one. On this one data set the network classifies "
        f"{accuracy.percent()} % of new sequences, one of infinite width {100 * limit:.1f} %."
    )


# In the order of "Five findings" in README.md.
FINDINGS = (
    Finding("mixit", "Table 2, retrieval", freezing),
    Finding("random_attention", "Theorem 2.1", stochastic_equation),
    Finding("two_failure_modes", "Figure 1f", collapse),
    Finding("associations", "Figure 3, the paper's sizes", noise),
    Finding("attention_paths", "Figure 2c, bottom", order_parameter),
)
