"""Tests that recorded full runs show the same results as the small runs of the demo."""

from experiments.papers.sentences import Runs, baseline, longest, number
from jaxformer.stats.differences import ABOVE, Number, difference

MAX_DISTANCE = 0.05  # Kolmogorov-Smirnov distance between networks and equation
MIN_SHARE = 0.9  # share of the networks that lie on the predicted side of the border


def freezing(runs: Runs) -> bool:
    """Tests that frozen queries and keys are more accurate than a guess and than fixed mixing."""
    frozen = number(runs, "frozen_qk", "accuracy")
    mixing = number(runs, longest(runs, "mixit"), "accuracy")
    guess = Number(baseline(runs, "standard", "in_context_guess"))
    return _is_above(frozen, guess) and _is_above(frozen, mixing)


def stochastic_equation(runs: Runs) -> bool:
    """Tests that networks of width 200 are distributed like the stochastic equation."""
    names = ("log_trace", "correlation")
    return all(number(runs, "paths", f"ks/{n}/tau=1/n=200").mean < MAX_DISTANCE for n in names)


def collapse_border(runs: Runs) -> bool:
    """Tests that the theory predicts which networks collapse."""
    return number(runs, "diagram", "exact_on_their_side").mean > MIN_SHARE


def noise(runs: Runs) -> bool:
    """Tests that the right answer is more probable without the last feed-forward layer."""
    return _is_above(number(runs, "run", "p_correct_without_f2"), number(runs, "run", "p_correct"))


def order_parameter(runs: Runs) -> bool:
    """Tests that the good and the denoising path work against each other."""
    return number(runs, "sampled", "U/good,denoising").mean < 0


def _is_above(left: Number, right: Number) -> bool:
    return difference(left, right).verdict() == ABOVE
