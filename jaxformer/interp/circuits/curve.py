r"""The faithfulness of circuits of every size, beside its null.

    f(C) = (m(C) - m(nothing)) / (m(N) - m(nothing))

m is the mean metric over prompts, N the whole network and C a circuit of the edges with the highest
scores; edges outside C carry the values of the ablation. A curve is measured on prompts that did
not choose its edges. Two columns stand beside it: random circuits of the same size, and circuits
that were chosen in the same way in networks that cannot know the answer (`jaxformer.nulls`), as a
share of what all edges do in the network itself.

MIB (Mueller et al. 2504.13151) sums a curve up by two areas over the share of edges k, by the
trapezoid rule over ten shares from .1 % to all edges:

    CPR = \int f(C_k) dk          how much of the answer small circuits restore; higher is better
    CMD = \int |1 - f(C_k)| dk    how far they are from the network; lower is better

For CPR the edges are chosen by their signed scores, since edges that hurt the answer should stay
out; for CMD by absolute scores. Areas over other sizes have other names here, `area` and
`distance`, because they are other numbers.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from jaxformer.core.errors import UserError, check_range
from jaxformer.interp.circuits import against_null
from jaxformer.interp.circuits.against_null import Nulls, Total, shares_over_draws
from jaxformer.interp.circuits.measured import Wiring
from jaxformer.stats.ratios import ENOUGH, Ratio, by_cluster, ratio, rounded

# The shares of edges at which MIB reads its curve.
SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
RANDOM_CIRCUITS = 2  # of each size
LEAST_TO_SPLIT = 4  # prompts or clusters; fewer choose the edges and measure them
RESAMPLES = 2000  # of the prompts, for the interval of a distance
Scores = np.ndarray | Callable[[Wiring], np.ndarray] | None


class Point(NamedTuple):
    """A circuit of `size` edges.

    Attributes:
        size: its number of edges.
        share: of all edges.
        faithfulness: the share of what all edges do that it restores.
        ratio: the same with its interval, or with the range of single prompts.
        random: the faithfulness of random circuits of this size; nan where there is one only.
        nulls: what a circuit of this size, chosen in the same way, restores in each null network,
            as a share of what all edges do in the network itself.
    """

    size: int
    share: float
    faithfulness: float
    ratio: Ratio
    random: float
    nulls: tuple[float, ...]


@dataclass(frozen=True, repr=False)
class Curve:
    """Faithfulness over size, from no edge to all.

    Attributes:
        points: a circuit of each size; () where there is nothing to explain.
        is_signed: whether the edges with the largest signed score went first.
        is_mib: whether the sizes are MIB's.
        total: what all edges do together, in the network and in its nulls.
        area: the area under the faithfulness.
        distance: the area between the faithfulness and 1.
        null_areas: the area under the column of each null.
        prompts: a line about the prompts that chose the edges and those that measured them.
    """

    points: tuple[Point, ...]
    is_signed: bool
    is_mib: bool
    total: Total
    area: Ratio | None
    distance: Ratio | None
    null_areas: tuple[float, ...]
    prompts: str

    @property
    def sentence(self) -> str:
        """Why there is nothing to explain, or ""."""
        return self.total.sentence

    @property
    def cpr(self) -> float:
        """The CPR of MIB: of a signed curve at MIB's sizes."""
        return self._named("CPR", self.area, is_signed=True)

    @property
    def cmd(self) -> float:
        """The CMD of MIB: of a curve by absolute scores at MIB's sizes."""
        return self._named("CMD", self.distance, is_signed=False)

    def _named(self, name: str, number: Ratio | None, is_signed: bool) -> float:
        if number is None:
            raise UserError(f"there is no {name}: {self.sentence}")
        if not self.is_mib or self.is_signed != is_signed:
            raise UserError(
                f"{name} of MIB has ten given sizes and signed={is_signed}: leave sizes out and "
                f"give signed={is_signed}, or read curve.area and curve.distance."
            )
        return number.value

    def __repr__(self) -> str:
        if not self.points:
            return self.sentence
        rows = [("edges", "share", "faithfulness", "random", "null")]
        for point in self.points[1:]:  # no edge has no faithfulness, as defined
            random = "" if np.isnan(point.random) else rounded(point.random)
            null = shares_over_draws(point.nulls) if point.nulls else ""
            share = f"{point.share:.2%}"
            rows.append((str(point.size), share, str(point.ratio), random, null))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [str(self.total), self.prompts]
        for row in rows:
            numbers = [
                f"{row[0]:>{widths[0]}}",
                f"{row[1]:>{widths[1]}}",
                f"{row[2]:<{widths[2]}}",
                f"{row[3]:<{widths[3]}}",
                row[4],
            ]
            lines.append("  ".join(numbers).rstrip())
        return "\n".join([*lines, *self._areas()])

    def _areas(self) -> list[str]:
        assert self.area is not None and self.distance is not None
        area = "CPR" if self.is_mib and self.is_signed else "area under the curve"
        distance = "CMD" if self.is_mib and not self.is_signed else "area between the curve and 1"
        null = f"; null {shares_over_draws(self.null_areas)}" if self.null_areas else ""
        return [f"{area} {self.area}{null}", f"{distance} {self.distance}"]


def curve(
    wiring: Wiring,
    scores: Scores = None,
    sizes: Sequence[int] | None = None,
    *,
    signed: bool = False,
    test: Wiring | None = None,
    clusters: Sequence[Any] | None = None,
    nulls: Nulls = None,
    seed: int = 0,
) -> Curve:
    """Measures circuits of the edges with the highest scores, beside those of null networks.

    If all edges together do nothing, or no more than in a null, the result has a `sentence` that
    says so, and no points.

    Args:
        wiring: the network and the prompts.
        scores: of each edge by prompt, (E, B), as `Wiring.patch` and `attribute` return, or (E,)
            from anywhere else; or a function that returns them for a wiring, such as
            `lambda wiring: wiring.attribute(20)`. By default `Wiring.edge_scores`, which also ranks
            the edges of null networks where `scores` is an array.
        sizes: numbers of edges; by default MIB's ten shares of all edges. No edge and all edges
            are always part of the curve.
        signed: whether edges with the largest signed score go first (for CPR), instead of the
            largest absolute one (for CMD).
        test: the same network on other prompts. Then all prompts of `wiring` choose the edges, and
            these measure them; give `wiring` itself to measure where was chosen. By default every
            second prompt (or cluster) chooses, and the others measure.
        clusters: of each prompt that measures, such as its template: prompts of one template
            resemble each other, so an interval is over templates. Also of the prompts of `wiring`
            where `test` is left out.
        nulls: the number of null networks whose block weights are drawn anew (default: eight, two
            for published models), or the parameters of nulls; 0: none.
        seed: of the nulls and of random circuits.

    Example:
        curve = circuits.curve(wiring, sizes=[10, 100])
        print(curve)
        curve.points[1].faithfulness, curve.points[1].nulls
    """
    n_edges = wiring.n_edges
    is_mib = sizes is None
    if sizes is None:
        sizes = [max(round(share * n_edges), 1) for share in SHARES]
    for size in sizes:
        check_range("the size of a circuit", size, 0, n_edges)
    all_sizes = sorted({0, *sizes, n_edges})
    if test is not None and test.edges != wiring.edges:
        raise UserError(
            f"test is another network: it has {test.n_edges} edges, the wiring {n_edges}. Make it "
            "with the same model and ablation, on other prompts."
        )
    score_function = scores if callable(scores) else Wiring.edge_scores
    if not callable(scores) and scores is not None:
        ranking(wiring, scores)  # wrong scores are refused before anything is measured

    measured = test or wiring
    null_list = against_null.null_params(wiring.model, wiring.params, nulls, seed)
    null_tests = against_null.wirings_of(measured, null_list)
    total = against_null.total(measured, null_tests, against_null.name_of(nulls), clusters)
    split = _split(wiring, scores, test, clusters)
    if total.sentence:
        return Curve((), signed, is_mib, total, None, None, (), split.text)

    # The network: its circuits, and random ones of the same sizes.
    choosing = wiring.of_prompts(split.choosing) if split.is_part else wiring
    measuring = measured.of_prompts(split.measuring) if split.is_part else measured
    chosen_scores = _chosen_scores(scores, score_function, choosing, split)
    order = ranking(choosing, chosen_scores, signed)
    restored_SxB = _restored(measuring, _first_edges(order, all_sizes))
    random_SxB = _random(measuring, all_sizes, np.random.default_rng(seed))

    # The nulls: the same choice and the same measurement.
    null_restored_NxS = np.zeros((len(null_tests), len(all_sizes)))
    null_choosing = null_tests
    if test is not None and test is not wiring:
        null_choosing = against_null.wirings_of(wiring, null_list)
    for number, (null, null_test) in enumerate(zip(null_choosing, null_tests, strict=True)):
        chooses = null.of_prompts(split.choosing) if split.is_part else null
        measures = null_test.of_prompts(split.measuring) if split.is_part else null_test
        with warnings.catch_warnings():  # of a network whose edges together do about nothing
            warnings.filterwarnings("ignore", message="the attributions of all edges miss")
            null_order = ranking(chooses, score_function(chooses), signed)
        null_SxB = _restored(measures, _first_edges(null_order, all_sizes))
        null_restored_NxS[number] = null_SxB.mean(1)

    # Everything is a share of what all edges do in the network, on the prompts that measure.
    change_B, its_clusters = against_null.change(measuring), split.clusters
    if change_B.mean() == 0:
        raise UserError(
            "all edges together change the score by 0 on the prompts that measure: faithfulness "
            "divides by that. Give more prompts."
        )
    null_share_NxS = null_restored_NxS / change_B.mean()
    points = []
    for number, size in enumerate(all_sizes):
        found = ratio(restored_SxB[number], change_B, its_clusters)
        random = float(random_SxB[number].mean() / change_B.mean())
        is_one_circuit = size in (0, n_edges)
        point = Point(
            size=size,
            share=size / n_edges,
            faithfulness=found.value,
            ratio=found,
            random=np.nan if is_one_circuit else random,
            nulls=tuple(null_share_NxS[:, number].tolist()),
        )
        points.append(point)
    shares = np.array(all_sizes) / n_edges
    # MIB's curve begins at its smallest share; ours at no edge.
    first = 1 if is_mib else 0
    weight_S = _trapezoid(shares[first:])
    null_areas = tuple((null_share_NxS[:, first:] @ weight_S).tolist())
    area = ratio(weight_S @ restored_SxB[first:], change_B, its_clusters)
    distance = _distance(weight_S, restored_SxB[first:], change_B, its_clusters, seed)
    return Curve(tuple(points), signed, is_mib, total, area, distance, null_areas, split.text)


class _Split(NamedTuple):
    """Which prompts choose the edges, and which measure their circuits."""

    choosing: np.ndarray
    measuring: np.ndarray
    is_part: bool  # whether each is a part of one wiring
    clusters: Sequence[Any] | None  # of the prompts that measure
    text: str


def _split(
    wiring: Wiring, scores: Scores, test: Wiring | None, clusters: Sequence[Any] | None
) -> _Split:
    n_prompts = len(wiring.tokens_BxT)
    every = np.arange(n_prompts)
    if test is not None:
        n_tested = len(test.tokens_BxT)
        by_cluster(np.zeros(n_tested), clusters)  # checks their number
        text = f"edges chosen on {n_prompts} prompts, measured on {n_tested} others"
        if test is wiring:
            text = f"edges chosen and measured on the same {n_prompts} prompts"
        return _Split(every, np.arange(n_tested), False, clusters, text)
    by_cluster(np.zeros(n_prompts), clusters)
    groups = every.tolist() if clusters is None else [*clusters]
    names = list(dict.fromkeys(groups))
    is_by_prompt = scores is None or callable(scores) or np.ndim(scores) == 2
    if not is_by_prompt or len(names) < LEAST_TO_SPLIT:
        why = "too few to hold any out" if is_by_prompt else "scores by prompt would hold half out"
        text = f"edges measured on {n_prompts} prompts, which may have chosen them ({why})"
        return _Split(every, every, False, clusters, text)
    first_names = set(names[::2])
    is_first = np.array([name in first_names for name in groups])
    choosing, measuring = every[is_first], every[~is_first]
    kept = None if clusters is None else [groups[i] for i in measuring]
    kind = "prompts" if clusters is None else f"prompts of {len(names) - len(first_names)} clusters"
    text = f"edges chosen on {len(choosing)} prompts, measured on {len(measuring)} other {kind}"
    return _Split(choosing, measuring, True, kept, text)


def _chosen_scores(
    scores: Scores, function: Callable[[Wiring], np.ndarray], choosing: Wiring, split: _Split
) -> np.ndarray:
    """The scores of edges on the prompts that choose."""
    if scores is None or callable(scores):
        return function(choosing)
    array = np.asarray(scores, float)
    return array[:, split.choosing] if split.is_part else array


def _first_edges(order: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """The circuits of the first edges, (S, E)."""
    chosen_SxE = np.zeros((len(sizes), len(order)), bool)
    for chosen_E, size in zip(chosen_SxE, sizes, strict=True):
        chosen_E[order[:size]] = True
    return chosen_SxE


def _restored(wiring: Wiring, chosen_SxE: np.ndarray) -> np.ndarray:
    """The gain of each circuit over the score without any edge, (S, B)."""
    return wiring.scores(chosen_SxE).astype(float) - wiring.nothing_B


def _random(wiring: Wiring, sizes: Sequence[int], random: np.random.Generator) -> np.ndarray:
    """The mean gain of random circuits of each size, (S, B)."""
    circuits = []
    for size in sizes:
        for _ in range(RANDOM_CIRCUITS if 0 < size < wiring.n_edges else 0):
            circuits.append(_first_edges(random.permutation(wiring.n_edges), [size])[0])
    found_CxB = iter(_restored(wiring, np.array(circuits, bool).reshape(-1, wiring.n_edges)))
    means = []
    for size in sizes:
        n_circuits = RANDOM_CIRCUITS if 0 < size < wiring.n_edges else 0
        of_size = [next(found_CxB) for _ in range(n_circuits)]
        means.append(np.mean(of_size, 0) if of_size else np.zeros(len(wiring.tokens_BxT)))
    return np.stack(means)


def _trapezoid(shares: np.ndarray) -> np.ndarray:
    """The weights with which heights at these shares sum to the area."""
    return np.array([np.trapezoid(unit, shares) for unit in np.eye(len(shares))])


def _distance(
    weight_S: np.ndarray,
    restored_SxB: np.ndarray,
    change_B: np.ndarray,
    clusters: Sequence[Any] | None,
    seed: int,
) -> Ratio:
    """The area between the curve and 1, with a bootstrap interval over prompts or clusters."""

    def area(restored_SxC: np.ndarray, change_C: np.ndarray) -> float:
        return float(weight_S @ np.abs(1 - restored_SxC.sum(1) / change_C.sum()))

    restored_SxC, _ = by_cluster(restored_SxB, clusters)
    change_C, _ = by_cluster(change_B, clusters)
    n, value = len(change_C), area(restored_SxC, change_C)
    single = [weight_S @ np.abs(1 - x / change_C.mean()) for x in restored_SxC.T]
    low = high = np.nan
    if n >= ENOUGH:
        low, high = -np.inf, np.inf
        if _is_different_from_0(change_C):
            random = np.random.default_rng(seed)
            drawn = random.integers(0, n, (RESAMPLES, n))
            found = [area(restored_SxC[:, i], change_C[i]) for i in drawn]
            low, high = np.quantile(found, [0.025, 0.975]).tolist()
    return Ratio(value, low, high, float(min(single)), float(max(single)), n)


def _is_different_from_0(change_C: np.ndarray) -> bool:
    """Whether the mean change differs from 0, so that resamples do not divide by about 0."""
    return ratio(np.ones(len(change_C)), change_C).is_bounded


def ranking(wiring: Wiring, scores: np.ndarray, signed: bool = False) -> np.ndarray:
    """Returns the numbers of the edges, the highest mean score first."""
    scores = np.asarray(scores, float)
    mean_E = scores.mean(1) if scores.ndim == 2 else scores
    if mean_E.shape != (wiring.n_edges,):
        raise UserError(
            f"expected a score for each of {wiring.n_edges} edges, got the shape {scores.shape}."
        )
    if not np.isfinite(mean_E).all():
        first = wiring.edges[int(np.isfinite(mean_E).argmin())]
        raise UserError(f"the score of {first} is not finite.")
    return np.argsort(-(mean_E if signed else np.abs(mean_E)), kind="stable")


def faithfulness(wiring: Any, score_B: np.ndarray, clusters: Sequence[Any] | None = None) -> Ratio:
    """The share of what all edges do that a circuit restores, with its interval.

    It is a ratio of two means over the same prompts, so the interval is Fieller's, which is
    unbounded where all edges together may do nothing (`jaxformer.stats.ratios`).

    Args:
        wiring: the network and the prompts.
        score_B: the metric of the circuit on each prompt.
        clusters: of each prompt, such as its template.
    """
    whole_B, nothing_B = wiring.whole_B.astype(float), wiring.nothing_B.astype(float)
    change_B = whole_B - nothing_B
    if change_B.mean() == 0:
        raise UserError(
            "the mean metric of the network is that without any edge: faithfulness divides by "
            "their difference. Give prompts whose effects do not offset each other."
        )
    return ratio(np.asarray(score_B, float) - nothing_B, change_B, clusters)
