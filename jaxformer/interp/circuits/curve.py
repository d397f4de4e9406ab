r"""The faithfulness of circuits of every size, and its two areas of MIB: CPR and CMD.

    f(C) = (m(C) - m(nothing)) / (m(N) - m(nothing))

m is the mean metric over prompts, N the whole network and C a circuit of the edges with the highest
scores; edges outside C carry the values of the ablation. MIB (Mueller et al. 2504.13151) sums the
curve up by two areas over the share of edges k, from 0 to 1, by the trapezoid rule:

    CPR = \int f(C_k) dk          how much of the answer small circuits restore; higher is better
    CMD = \int |1 - f(C_k)| dk    how far they are from the network; lower is better

For CPR the edges are chosen by their signed scores, since edges that hurt the answer should stay
out; for CMD by absolute scores.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxformer.core.errors import UserError, check_range
from jaxformer.interp.circuits.measured import Wiring
from jaxformer.stats.differences import LEVEL, mean_and_sem, quantile

# The shares of edges at which MIB reads its curve.
SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


class Point(NamedTuple):
    """A circuit of `size` edges, and its faithfulness with the half width of its 95 % interval."""

    size: int
    share: float
    faithfulness: float
    half_width: float  # over prompts; nan for a single one


class Curve(NamedTuple):
    """Faithfulness over size, from no edge to all."""

    points: tuple[Point, ...]
    is_signed: bool

    @property
    def cpr(self) -> float:
        """The area under the faithfulness; MIB's number is that of a curve that `is_signed`."""
        return self._area(lambda f: f)

    @property
    def cmd(self) -> float:
        """The area between the faithfulness and 1; MIB's is that of a curve by absolute scores."""
        return self._area(lambda f: abs(1 - f))

    def _area(self, height) -> float:
        shares = [point.share for point in self.points]
        return float(np.trapezoid([height(p.faithfulness) for p in self.points], shares))

    def __repr__(self) -> str:
        lines = [f"{'edges':>6}  {'share':>7}  faithfulness"]
        for point in self.points:
            number = f"{point.faithfulness:.3f}"
            if np.isfinite(point.half_width):
                number += f" ± {point.half_width:.3f}"
            lines.append(f"{point.size:6}  {point.share:7.2%}  {number}")
        return "\n".join([*lines, f"CPR {self.cpr:.3f}  CMD {self.cmd:.3f}"])


def curve(
    wiring: Wiring,
    scores: np.ndarray,
    sizes: Sequence[int] | None = None,
    *,
    signed: bool = False,
) -> Curve:
    """Measures circuits of the edges with the highest scores.

    Args:
        wiring: the network and the prompts.
        scores: of each edge, (E,), or (E, B) by prompt, as `Wiring.patch` and `attribute` return.
        sizes: numbers of edges; by default MIB's ten shares of all edges. No edge and all edges
            are always part of the curve.
        signed: whether edges with the largest signed score go first (for CPR), instead of the
            largest absolute one (for CMD).
    """
    n_edges = wiring.n_edges
    order = ranking(wiring, scores, signed)
    if sizes is None:
        sizes = [max(round(share * n_edges), 1) for share in SHARES]
    for size in sizes:
        check_range("the size of a circuit", size, 0, n_edges)
    all_sizes = sorted({0, *sizes, n_edges})
    chosen_CxE = np.zeros((len(all_sizes), n_edges), bool)
    for chosen_E, size in zip(chosen_CxE, all_sizes, strict=True):
        chosen_E[order[:size]] = True
    found_CxB = wiring.scores(chosen_CxE)
    points = [
        Point(size, size / n_edges, *faithfulness(wiring, score_B))
        for size, score_B in zip(all_sizes, found_CxB, strict=True)
    ]
    return Curve(tuple(points), signed)


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


def faithfulness(wiring: Wiring, score_B: np.ndarray) -> tuple[float, float]:
    """Returns f of a circuit's metric on each prompt, and the half width of its 95 % interval.

    f is a ratio of two means over the same prompts, so its error is that of the mean of
    m(C) - f m(N) - (1 - f) m(nothing), divided by the denominator (the delta method).
    """
    whole_B, nothing_B = wiring.whole_B.astype(float), wiring.nothing_B.astype(float)
    total = (whole_B - nothing_B).mean()
    if total == 0:
        raise UserError(
            "the mean metric of the network is that without any edge: faithfulness divides by "
            "their difference. Give prompts whose effects do not offset each other."
        )
    f = float((score_B - nothing_B).mean() / total)
    rest_B = score_B - f * whole_B - (1 - f) * nothing_B
    sem = mean_and_sem([float(x) for x in rest_B])[1]
    width = quantile(len(rest_B) - 1, LEVEL) if len(rest_B) > 1 else np.nan
    return f, float(width * sem / abs(total))
