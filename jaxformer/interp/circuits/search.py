"""The smallest circuit that an exact search finds, and whether a circuit is complete and minimal.

A search starts from the whole network and cuts edges as long as the metric stays where it was: its
mean absolute change over prompts is small, so changes of single prompts do not offset each other.
Single edges go first, from the logits backwards as in ACDC (Conmy et al. 2304.14997); then pairs,
because two edges that cancel can only go together. What is left has no edge, and within the budget
no pair, that could go too. It is one of the smallest circuits, not the only one: of two heads that
do the same thing it keeps one.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from jaxformer.core.errors import UserError, check_range
from jaxformer.interp.circuits.graph import Edge
from jaxformer.interp.circuits.measured import Wiring

BATCH = 64  # groups of edges that are tried in one call


class Found(NamedTuple):
    """A circuit of a search, and what it cost.

    Attributes:
        edges: the circuit.
        distance: the mean change of the metric over prompts, as a share of what all edges add.
        runs: the forward passes that the search took.
        is_finished: whether the budget sufficed to try all single edges and all pairs.
        held_out: the distance on prompts that the search did not see; nan without such prompts.
        completeness: how differently circuit and network suffer from the same cuts, as the
            function `completeness` says; 0 is complete. A circuit that is one of several equally
            good ones is not.
    """

    edges: frozenset[Edge]
    distance: float
    runs: int
    is_finished: bool
    held_out: float = math.nan
    completeness: float = math.nan

    def __str__(self) -> str:
        lines = [str(edge) for edge in sorted(self.edges)]
        held_out = "" if math.isnan(self.held_out) else f", {self.held_out:.3f} on held-out prompts"
        lines.append(
            f"{len(self.edges)} edges; distance {self.distance:.3f}{held_out}; "
            f"completeness {self.completeness:.2f} (0: no other circuit does the same)"
        )
        return "\n".join(lines)


def distances(wiring: Wiring, chosen_CxE: np.ndarray) -> np.ndarray:
    """Returns the mean |metric of the circuit - metric of the network| / scale, (C,)."""
    changes_CxB = np.abs(wiring.scores(chosen_CxE) - wiring.whole_B)
    return changes_CxB.mean(1) / wiring.scale


def find(
    wiring: Wiring,
    tolerance: float = 0.01,
    budget: int = 20_000,
    *,
    test: Wiring | None = None,
) -> Found:
    """Searches the smallest circuit whose distance is at most `tolerance`.

    Other circuits may be as small: `alternatives` looks for them, and the circuit's `completeness`
    says whether to expect them.

    Args:
        wiring: the network and the prompts.
        tolerance: the largest mean change of the metric over prompts, as a share of what all edges
            add to it. Changes of single prompts do not offset each other.
        budget: the largest number of forward passes. A network of E edges needs about E, and as
            many again as its circuit has pairs of edges.
        test: the same network on prompts that the search does not see, for `Found.held_out`.
    """
    return _search(wiring, tolerance, budget, test, without=())


def alternatives(
    wiring: Wiring,
    found: Found,
    tolerance: float = 0.01,
    budget: int = 20_000,
    *,
    test: Wiring | None = None,
) -> list[Found]:
    """Other circuits that are as small as one that was found and within the same tolerance.

    Each edge of the circuit is cut in turn, and the search begins again without it. Of two heads
    that do the same thing, that finds the circuit of the other one.

    Args:
        wiring: the network and the prompts.
        found: the circuit of `find`.
        tolerance: as in `find`.
        budget: of all searches together.
        test: as in `find`.
    """
    others: dict[frozenset[Edge], Found] = {}
    left = budget
    for edge in sorted(found.edges):
        if left < 1:
            break
        other = _search(wiring, tolerance, left, test, without=(edge,))
        left -= other.runs
        is_as_good = other.distance <= tolerance and len(other.edges) <= len(found.edges)
        if is_as_good and edge not in other.edges:
            others[other.edges] = other
    return [*others.values()]


def _search(
    wiring: Wiring,
    tolerance: float,
    budget: int,
    test: Wiring | None,
    without: Sequence[Edge],
) -> Found:
    """Returns the smallest circuit that a search finds if it begins without some edges."""
    check_range("tolerance", tolerance, 0, 1)
    check_range("budget", budget, 1)
    if test is not None and test.edges != wiring.edges:
        raise UserError(
            f"test is another network: it has {test.n_edges} edges, the wiring {wiring.n_edges}."
        )
    trial = _Trial(wiring, tolerance, budget)
    gone = [wiring.edges.index(edge) for edge in without]
    if gone and not trial.cut(np.array(gone)):
        return Found(frozenset(wiring.edges), 0.0, trial.runs, not trial.is_spent)
    # Most edges of a network have no effect; they go together, or in halves where they cannot.
    alone_E = trial.distances(~np.eye(wiring.n_edges, dtype=bool))
    trial.cut_or_halve(np.flatnonzero(alone_E <= tolerance / wiring.n_edges)[::-1])
    is_smaller = True
    while is_smaller:
        trial.cut_unconnected()
        is_smaller = trial.cut_first_of(1) or trial.cut_first_of(2)
    distance = float(distances(wiring, trial.kept_E[None])[0])
    edges = frozenset(e for e, is_in in zip(wiring.edges, trial.kept_E, strict=True) if is_in)
    held_out = math.nan
    if test is not None:
        held_out = float(distances(test, trial.kept_E[None])[0])
    return Found(
        edges,
        distance,
        trial.runs,
        not trial.is_spent,
        held_out,
        completeness(wiring, edges) if edges else math.nan,
    )


class _Trial:
    """A circuit that loses edges as long as its distance stays within the tolerance."""

    def __init__(self, wiring: Wiring, tolerance: float, budget: int):
        self.wiring, self.tolerance, self.budget = wiring, tolerance, budget
        self.kept_E = np.ones(wiring.n_edges, bool)
        self.runs = 0

    @property
    def is_spent(self) -> bool:
        return self.runs >= self.budget

    def distances(self, chosen_CxE: np.ndarray) -> np.ndarray:
        """Returns the distance of each circuit, infinite where the budget does not reach it."""
        allowed = chosen_CxE[: self.budget - self.runs]
        self.runs += len(allowed)
        found = np.full(len(chosen_CxE), np.inf)
        found[: len(allowed)] = distances(self.wiring, allowed) if len(allowed) else []
        return found

    def cut(self, edges: np.ndarray) -> bool:
        """Cuts edges if the circuit stays within the tolerance; returns whether it did."""
        without_E = self.kept_E.copy()
        without_E[edges] = False
        is_cut = bool(self.distances(without_E[None])[0] <= self.tolerance)
        if is_cut:
            self.kept_E = without_E
        return is_cut

    def cut_or_halve(self, edges: np.ndarray) -> None:
        """Cuts as many of some edges as possible, those at the beginning first."""
        if not len(edges) or self.cut(edges) or len(edges) == 1:
            return
        half = len(edges) // 2
        self.cut_or_halve(edges[:half])
        self.cut_or_halve(edges[half:])

    def cut_unconnected(self) -> None:
        """Cuts edges that do not lie on a path from the embedding to the logits."""
        loose = np.flatnonzero(self.kept_E & ~self.wiring.graph.connected(self.kept_E))
        self.cut_or_halve(loose[::-1])

    def cut_first_of(self, size: int) -> bool:
        """Cuts the first group of so many edges that can go; returns whether there is one.

        Readers are sorted, so the last edges are those next to the logits: they are tried first.
        """
        groups = [*combinations(np.flatnonzero(self.kept_E)[::-1], size)]
        for start in range(0, len(groups), BATCH):
            if self.is_spent:
                return False
            batch = groups[start : start + BATCH]
            trials_CxE = self.kept_E[None].repeat(len(batch), 0)
            for trial_E, group in zip(trials_CxE, batch, strict=True):
                trial_E[list(group)] = False
            can_go = np.flatnonzero(self.distances(trials_CxE) <= self.tolerance)
            if len(can_go):
                self.kept_E = trials_CxE[can_go[0]]
                return True
        return False


def minimality(wiring: Wiring, circuit: Iterable[Edge]) -> dict[Edge, float]:
    """Returns the distance between the circuit and the circuit without each of its edges.

    An edge with a number near 0 does not belong into the circuit.
    """
    chosen_E = wiring.graph.chosen(circuit)
    edges = np.flatnonzero(chosen_E)
    if not len(edges):
        raise UserError("the circuit has no edge.")
    without_CxE = chosen_E[None].repeat(len(edges), 0)
    without_CxE[np.arange(len(edges)), edges] = False
    with_B = wiring.scores(chosen_E[None])[0]
    changes_C = np.abs(wiring.scores(without_CxE) - with_B).mean(1) / wiring.scale
    return {wiring.edges[edge]: float(x) for edge, x in zip(edges, changes_C, strict=True)}


def completeness(
    wiring: Wiring, circuit: Iterable[Edge], samples: int = 20, seed: int = 0
) -> float:
    """Returns how differently circuit and network suffer from the same cuts; 0 is complete.

    Random halves of the circuit are cut from it, and from the whole network (Wang et al.
    2211.00593). A circuit that missed a backup is hurt more than the network, which still has the
    backup. The largest mean difference of the metric over `samples` halves, as a share of what all
    edges add.
    """
    check_range("samples", samples, 1, 10_000)
    chosen_E = wiring.graph.chosen(circuit)
    random = np.random.default_rng(seed)
    cut_CxE = chosen_E & (random.random((samples, len(chosen_E))) < 0.5)
    circuit_CxB, whole_CxB = (wiring.scores(base & ~cut_CxE) for base in (chosen_E, True))
    return float((np.abs(circuit_CxB - whole_CxB).mean(1) / wiring.scale).max())
