"""Correction of p values for their number.

Of twenty comparisons of equal networks, one lies outside its 95 % interval on average. Holm's
method keeps the probability of any false decision below 5 %; use it where each single decision
counts. Benjamini and Hochberg's method keeps the expected share of false decisions below 5 %, so
it decides more; use it for a table of many parts. No method corrects for comparisons that were
chosen after the numbers were seen.
"""

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns adjusted p values: the largest of p_(i) (n - i) up to each rank."""
    n, largest, adjusted = len(p_values), 0.0, [0.0] * len(p_values)
    for rank, i in enumerate(sorted(range(n), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, p_values[i] * (n - rank)))
        adjusted[i] = largest
    return adjusted


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Returns q values: the smallest of p_(i) n / i from each rank on."""
    n, smallest, adjusted = len(p_values), 1.0, [1.0] * len(p_values)
    descending = sorted(range(n), key=p_values.__getitem__, reverse=True)
    for rank, i in zip(range(n, 0, -1), descending, strict=True):
        smallest = min(smallest, p_values[i] * n / rank)
        adjusted[i] = smallest
    return adjusted
