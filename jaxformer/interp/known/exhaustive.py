"""The smallest circuits by trying all of them, which a handful of edges allows."""

from collections.abc import Iterable
from itertools import combinations, islice

import numpy as np

from jaxformer.core.errors import UserError, check_range
from jaxformer.interp.circuits.graph import Edge
from jaxformer.interp.circuits.measured import Wiring
from jaxformer.interp.circuits.search import distances

MAX_EDGES = 20
AT_ONCE = 1024


def smallest(
    wiring: Wiring, candidates: Iterable[Edge], tolerance: float = 0.01
) -> tuple[frozenset[Edge], ...]:
    """All smallest circuits among some edges, by trying every set of them, small sets first.

    All other edges are cut throughout. A circuit of k among n edges costs about as many forward
    passes as there are sets of up to k edges: 4,000 for six of twelve.

    Args:
        wiring: the network and the prompts.
        candidates: at most 20 edges, such as `Compiled.edges`.
        tolerance: the largest mean change of the metric, as in `circuits.find`.
    """
    edges = sorted(set(candidates))
    check_range("the number of edges to try", len(edges), 1, MAX_EDGES)
    numbers = np.flatnonzero(wiring.graph.chosen(edges))
    for size in range(len(edges) + 1):
        found = _of_size(wiring, numbers, size, tolerance)
        if found:
            return tuple(found)
    raise UserError(
        f"no set of the {len(edges)} edges keeps the score within {tolerance:.3g}: give more "
        "candidates, or a larger tolerance for a network with noise."
    )


def _of_size(
    wiring: Wiring, numbers: np.ndarray, size: int, tolerance: float
) -> list[frozenset[Edge]]:
    """The circuits of so many of these edges that keep the score."""
    found = []
    sets = combinations(numbers, size)
    while batch := [*islice(sets, AT_ONCE)]:
        chosen_CxE = np.zeros((len(batch), wiring.n_edges), bool)
        for row_E, chosen in zip(chosen_CxE, batch, strict=True):
            row_E[list(chosen)] = True
        is_close_C = distances(wiring, chosen_CxE) <= tolerance
        for i in np.flatnonzero(is_close_C):
            found.append(frozenset(wiring.edges[number] for number in batch[i]))
    return found
