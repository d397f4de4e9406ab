"""The boundaries of a network: the residual weight and the score scale at which tokens collapse."""

import functools
import math
from collections.abc import Callable

from jaxformer.training.ranges import least_keys
from theory.advise.question import Question, with_beta
from theory.signal.recursion import forward


@functools.lru_cache(16)  # the verdict and the advice need it
def critical_alpha(question: Question) -> float:
    """Returns the smallest residual weight alpha_SA of attention without rank collapse.

    It is inf if there is none in [0, 1024].
    """
    net = question.architecture

    def excess(alpha: float) -> float:
        """Returns the last cosine minus the cosine at which tokens count as collapsed."""
        layers = forward(net.replace(alpha_sa=alpha), *question.inputs)
        return layers.cosine[-1] - (1 - question.epsilon)

    if excess(1.0) <= 0:
        low = next((x for x in (0.5, 0.25, 0.1, 0.01, 0.0) if excess(x) > 0), None)
        return 0.0 if low is None else edge_of(excess, low, 1.0)
    high = next((2.0**k for k in range(1, 11) if excess(2.0**k) <= 0), None)
    return math.inf if high is None else edge_of(excess, high / 2, high)


@functools.lru_cache(16)
def critical_beta(question: Question) -> float:
    """Returns the largest score scale beta at which a query sees enough keys in every layer.

    It is 0 if no beta gives enough keys, and inf if every tested beta does.
    """
    limit = math.log(least_keys(question.length))

    def missing_entropy(beta: float) -> float:
        net = with_beta(question.architecture, beta, question.length)
        return limit - forward(net, *question.inputs).entropy.min()

    betas = (1.0, 2.0, 4.0, 16.0, 64.0)
    first_bad = next((k for k, beta in enumerate(betas) if missing_entropy(beta) > 0), None)
    if first_bad is None:
        return math.inf
    if first_bad == 0 and missing_entropy(0.0) > 0:
        return 0.0
    last_good = betas[first_bad - 1] if first_bad else 0.0
    return edge_of(missing_entropy, betas[first_bad], last_good)


def edge_of(excess: Callable[[float], float], bad: float, good: float) -> float:
    """Returns a point with excess <= 0 next to a change of sign, to a relative precision of 4e-6.

    Chandrupatla's method: inverse quadratic interpolation where it is safe, else bisection.

    Args:
      excess: the function.
      bad: a point with excess > 0.
      good: a point with excess <= 0.
    """
    # The root is between a and b. c is the last point that was dropped. t places the next point.
    a, b, f_a, f_b, t = bad, good, excess(bad), excess(good), 0.5
    for _ in range(60):
        x = a + t * (b - a)
        f = excess(x)
        if (f > 0) == (f_a > 0):
            c, f_c = a, f_a
        else:
            c, b, f_c, f_b = b, a, f_b, f_a
        a, f_a = x, f
        width = 2e-6 * max(abs(a), abs(b), 1e-3)
        if abs(b - a) <= 2 * width:
            break
        xi, phi = (a - b) / (c - b), (f_a - f_b) / (f_c - f_b) if f_c != f_b else 0.5
        if phi**2 < xi and (1 - phi) ** 2 < 1 - xi:
            t = f_a / (f_b - f_a) * f_c / (f_b - f_c)
            t += (c - a) / (b - a) * f_a / (f_c - f_a) * f_b / (f_c - f_b)
        else:
            t = 0.5
        least = width / abs(b - a)
        t = min(1 - least, max(least, t))
    return b if f_b <= 0 else a
