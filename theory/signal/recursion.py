"""The signal of any transformer at initialisation, layer by layer, in numpy.

The state is q_t = |x_t|^2 / d of a token and p_tu = x_t.x_u / d of two, which all pairs share in a
bidirectional network; in a causal one they depend on the positions. With n = N(x) and A the rows of
attention, wide networks map them by

    SA(q_t)  = sV2 [Y_q C + (1 - Y_q) m_tt],     SA(p_tu) = sV2 [Y_p C + (1 - Y_p) m_tu]
    MLP(q_t) = s22 E phi(u_t)^2 + b2,            MLP(p_tu) = s22 E phi(u_t) phi(u_u) + b2

C: the mean of n_s.n_s / d over the tokens s that both see; m_tu: that of n_s.n_s' / d over s != s'
of which t sees s and u sees s'. Y_q, Y_p: theory.rem for the number of tokens seen, exact at finite
length. For a post-norm encoder these are eqs. (16)-(19) of arXiv 2505.24333.

Positions are grouped in cells, exact up to 8 and then a quarter longer each: two cells are two
tokens at their middles. A bidirectional network is one cell.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from jaxformer.core.errors import UserError
from theory.activation_moments import moments
from theory.rem.interpolated_tables import LONGEST, Rows, rows_of_length
from theory.signal.architecture import Architecture

ALONE, GROWTH = 8, 1.25  # cells of one position, then each larger by this factor
TURNS = 4096  # rotary phases further apart than this are taken as at this distance


class Layers(NamedTuple):
    """By depth, averaged over positions and pairs."""

    cosine: np.ndarray  # (L+1,) mean cosine of two tokens, entry 0 is the input of block 0
    norm: np.ndarray  # (L+1,) mean of |x|^2 / d
    self_overlap: np.ndarray  # (L,) mean of sum_s A_ts^2
    entropy: np.ndarray  # (L,) mean entropy of a row in nats


@dataclass(frozen=True)
class Cells:
    """Positions in groups; `rows` knows the overlaps of rows at the middle of each."""

    count_K: np.ndarray
    seen_KxJ: np.ndarray  # how many positions of cell j the middle of cell k sees
    both_KxKxJ: np.ndarray  # how many of them the middles of two cells see
    rows: Rows

    @property
    def length_K(self):
        return self.rows.length_K


class Seen(NamedTuple):
    """What one attention met: kept for the way back."""

    n_q: np.ndarray  # (K,) of the normalised tokens
    n_p: np.ndarray  # (K, K)
    same: np.ndarray  # (K,), C
    other: np.ndarray  # (K, K), m
    s2: np.ndarray  # (K,) variance of the scores between tokens
    y_q: np.ndarray
    moment: np.ndarray
    cube: np.ndarray
    y_p: np.ndarray  # (K, K)
    entropy: np.ndarray


class Step(NamedTuple):
    """One block: its two inputs as they are, and what its attention met."""

    q: np.ndarray
    p: np.ndarray
    q_mlp: np.ndarray
    p_mlp: np.ndarray
    q_end: np.ndarray  # post-norm: before the last norm
    seen: Seen


def forward(
    arch: Architecture, length: int, rho0: float | None = None, repeat: float = 0.0
) -> Layers:
    """The signal at every layer; `rho0` and `repeat` as in `Architecture.start`."""
    return layers_of(*trace(arch, length, rho0, repeat))


def layers_of(cells: Cells, states, steps: list[Step]) -> Layers:
    """The averages of what `trace` gave."""
    weight_K = cells.count_K / cells.count_K.sum()
    return Layers(
        np.array([mean_cosine(cells, q, p) for q, p in states]),
        np.array([weight_K @ q for q, _ in states]),
        np.array([weight_K @ step.seen.y_q for step in steps]),
        np.array([weight_K @ step.seen.entropy for step in steps]),
    )


def trace(arch: Architecture, length: int, rho0: float | None = None, repeat: float = 0.0):
    """(cells, the state at every layer, what happened in every block)."""
    cells = cells_of(check_length(length), arch.causal)
    q0, p0 = arch.start(rho0, repeat)
    n = len(cells.count_K)
    states, steps = [(np.full(n, q0), np.full((n, n), p0))], []
    turn_K, turn_KxK = turning(cells, arch)
    for _ in range(arch.layers):
        state, step = block(arch, cells, *states[-1], turn_K, turn_KxK)
        states.append(state)
        steps.append(step)
    return cells, states, steps


def block(arch: Architecture, cells: Cells, q, p, turn_K, turn_KxK):
    """The state after one block, and what happened in it."""
    a2, m2 = arch.alpha_sa**2, arch.alpha_mlp**2
    inside = normalised(q, p, arch.eps) if arch.pre_norm else (q, p)
    seen = look(arch, cells, *inside, turn_K, turn_KxK)
    add_q, add_p = attended(arch, cells, seen)
    q_mlp, p_mlp = a2 * q + add_q, a2 * p + add_p
    if arch.parallel:
        hidden_q, hidden_p = perceptron(arch, *inside)
        state = q_mlp + hidden_q, p_mlp + hidden_p
        return state, Step(q, p, q, p, state[0], seen)
    if arch.pre_norm:
        hidden_q, hidden_p = perceptron(arch, *normalised(q_mlp, p_mlp, arch.eps))
        state = m2 * q_mlp + hidden_q, m2 * p_mlp + hidden_p
        return state, Step(q, p, q_mlp, p_mlp, state[0], seen)
    middle = normalised(q_mlp, p_mlp, arch.eps)
    hidden_q, hidden_p = perceptron(arch, *middle)
    end_q, end_p = m2 * middle[0] + hidden_q, m2 * middle[1] + hidden_p
    return normalised(end_q, end_p, arch.eps), Step(q, p, q_mlp, p_mlp, end_q, seen)


def normalised(q, p, eps):
    """N(x); a network of zeros stays one."""
    scale = np.where(q + eps > 0, 1 / np.sqrt(np.where(q + eps > 0, q + eps, 1)), 0)
    return q * scale**2, p * scale[:, None] * scale[None]


def look(arch, cells: Cells, n_q, n_p, turn_K, turn_KxK) -> Seen:
    """The rows of attention over these normalised tokens."""
    same_K, other_KxK = visible_means(cells, n_q, n_p)
    s2 = arch.score_variance * n_q * np.maximum(same_K - turn_K * np.diagonal(other_KxK), 0)
    scale = np.sqrt(n_q[:, None] * n_q[None])
    rho = turn_KxK * n_p / np.where(scale > 0, scale, 1)
    y_q, moment, cube, entropy = cells.rows.statistics(s2)
    y_p = cells.rows.cross_overlap(s2, rho)
    return Seen(n_q, n_p, same_K, other_KxK, s2, y_q, moment, cube, y_p, entropy)


def attended(arch, cells: Cells, seen: Seen):
    """q and p of what attention adds."""
    same_K, other_KxK = seen.same, seen.other
    shorter = cells.length_K[:, None] <= cells.length_K[None]
    same_KxK = np.where(shorter, same_K[:, None], same_K[None])
    q = seen.y_q * same_K + (1 - seen.y_q) * np.diagonal(other_KxK)
    p = seen.y_p * same_KxK + (1 - seen.y_p) * other_KxK
    return arch.sigma_v2 * q, arch.sigma_v2 * p


def perceptron(arch, n_q, n_p):
    """q and p of what the MLP adds."""
    b2 = arch.std_bias**2
    u_q, u_p = arch.sigma_12 * n_q + b2, arch.sigma_12 * n_p + b2
    square, kernel = moments(arch.activation, u_q, u_p)
    if arch.gated:
        square, kernel = square * u_q, kernel * u_p
    return arch.sigma_22 * square + b2, arch.sigma_22 * kernel + b2


# Positions ---------------------------------------------------------------------------------------


@lru_cache(maxsize=32)
def cells_of(length: int, causal: bool) -> Cells:
    """All positions in one cell, or those of a causal network in cells that grow."""
    if not causal:
        one = np.array([float(length)])
        return Cells(one, one[:, None], one[:, None, None], rows_of_length(one))
    edges = list(range(min(ALONE, length) + 1))
    while edges[-1] < length:
        grown = edges[-1] + max(1, round((GROWTH - 1) * edges[-1]))
        # No crumb at the end.
        edges.append(length if length - grown < 0.1 * length else grown)
    first, last = np.array(edges[:-1]) + 1.0, np.array(edges[1:], float)
    middle = (first + last) / 2
    full = np.where(last[None] <= middle[:, None], last - first + 1, 0)
    own = np.where(np.eye(len(first), dtype=bool), middle - first + 1, 0)
    seen = np.where(own > 0, own, full)
    both = np.minimum(seen[:, None], seen[None])
    return Cells(last - first + 1, seen, both, rows_of_length(middle))


def visible_means(cells: Cells, n_q, n_p):
    """(K,) the mean square of the tokens that k sees; (K, K) the mean over s != s' of their
    products, s seen by k and s' by l."""
    v, t = cells.seen_KxJ, cells.length_K
    same_K = v @ n_q / t
    pairs = v @ n_p @ v.T - cells.both_KxKxJ @ np.diagonal(n_p)
    count = t[:, None] * t[None] - np.minimum(t[:, None], t[None])
    return same_K, np.where(count > 0, pairs / np.where(count > 0, count, 1), 0)


def mean_cosine(cells: Cells, q, p) -> float:
    """Over all pairs of different tokens."""
    scale = np.sqrt(q[:, None] * q[None])
    n = cells.count_K
    pairs = n[:, None] * n[None] - np.diag(n)
    cosine = np.where(scale > 0, p / np.where(scale > 0, scale, 1), 1)
    return float(np.sum(pairs * cosine) / np.sum(pairs))


def turning(cells: Cells, arch: Architecture):
    """What rotary positions leave of the part of the keys that all tokens share: the mean of
    cos(turn rate x distance), over the pairs that a row of each cell sees, and between cells."""
    n = len(cells.count_K)
    if not arch.rotary:
        return np.ones(n), np.ones((n, n))
    pairs = max(1, round(arch.rotary * arch.head_width / 2))
    rates = arch.rotary_base ** (-np.arange(pairs) / pairs)
    kept = 2 * pairs / arch.head_width
    longest = int(min(cells.count_K.sum(), TURNS))
    kappa = 1 - kept + kept * np.mean(np.cos(np.arange(longest)[:, None] * rates), -1)
    distance = np.arange(longest)
    # Mean over pairs s != s' of t positions: distance D occurs t - D times.
    first, second = np.cumsum(kappa[1:]), np.cumsum(kappa[1:] * distance[1:])
    t = np.clip(cells.length_K, 2, longest)
    last = np.clip(np.ceil(t).astype(int) - 2, 0, longest - 2)
    turn_K = 2 * (t * first[last] - second[last]) / (t * (t - 1))
    if n == 1:
        return turn_K, turn_K[:, None]
    apart = np.abs(cells.length_K[:, None] - cells.length_K[None])
    within = np.diag(cells.count_K / 3)
    at = np.minimum(np.round(apart + within), longest - 1).astype(int)
    return turn_K, kappa[at]


def check_length(length: int, name: str = "length") -> int:
    """Raises unless it is a whole number of tokens that the tables reach."""
    if isinstance(length, bool) or not isinstance(length, int) or not 2 <= length <= LONGEST:
        raise UserError(f"{name} must be a whole number from 2 to {LONGEST:.0f}, got {length!r}.")
    return length
