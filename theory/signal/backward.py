"""The gradient of any transformer at initialisation, layer by layer, from the slopes of its maps.

g_t is the gradient of the loss in token t of the residual stream, G_tt = |g_t|^2 and G_tu = g_t.g_u
averaged over random networks. The loss is a random direction at the last layer, so G_tu starts as
0. Going back through a block each branch adds, by the chain rule and independent weights,

    MLP     G_tu += s12 s22 E phi'(u_t) phi'(u_u) G_tu / (|x_t| |x_u|)         (N divides by |x|)
    values  G_ss' += sV2 sum_tu E[A_ts A_us'] G_tu / (|x_s| |x_s'|)
    scores  G_tt += sV2 sa2 (C - m) [(C - m) + C] (Y_q - 2 Y_3 + Y_4) G_tt / |x_t|^2

with Y_3 = E sum A^3, Y_4 = E (sum A^2)^2: the softmax's own slope, its part through queries and its
part through keys (the second is counted at the token that asks). Correlations of gradients through
the scores of different tokens are left out: they vanish as tokens become alike.
"""

from typing import NamedTuple

import numpy as np

from theory.activation_moments import moments, slopes
from theory.signal.architecture import Architecture
from theory.signal.recursion import Cells, Step, trace


class Gradients(NamedTuple):
    """By depth."""

    size: np.ndarray  # (L+1,) rms of dLoss/dx_l over tokens, 1 at the last layer

    @property
    def ratio(self) -> float:
        """What the first block's output receives over what the last one's does."""
        return float(self.size[..., 1].mean() / self.size[..., -1].mean())


def backward(
    arch: Architecture, length: int, rho0: float | None = None, repeat: float = 0.0
) -> Gradients:
    """The size of the gradient at every layer."""
    return gradients(arch, *trace(arch, length, rho0, repeat))


def gradients(arch: Architecture, cells: Cells, states, steps: list[Step]) -> Gradients:
    """The same from what `trace` gave."""
    n = len(cells.count_K)
    g_q, g_p = np.ones(n), np.zeros((n, n))
    weight_K = cells.count_K / cells.count_K.sum()
    sizes = [1.0]
    for step in reversed(steps):
        g_q, g_p = _through_block(arch, cells, step, g_q, g_p)
        sizes.append(float(np.sqrt(weight_K @ g_q)))
    return Gradients(np.array(sizes[::-1]))


def _through_block(arch, cells, step: Step, g_q, g_p):
    a2, m2 = arch.alpha_sa**2, arch.alpha_mlp**2
    if arch.parallel:
        mlp = _norm(arch, step.q, *_mlp(arch, step.q, step.p, g_q, g_p))
        attention = _norm(arch, step.q, *_attention(arch, cells, step, g_q, g_p))
        return a2 * g_q + mlp[0] + attention[0], a2 * g_p + mlp[1] + attention[1]
    if arch.pre_norm:
        mlp = _norm(arch, step.q_mlp, *_mlp(arch, step.q_mlp, step.p_mlp, g_q, g_p))
        g_q, g_p = m2 * g_q + mlp[0], m2 * g_p + mlp[1]
        attention = _norm(arch, step.q, *_attention(arch, cells, step, g_q, g_p))
        return a2 * g_q + attention[0], a2 * g_p + attention[1]
    g_q, g_p = _norm(arch, step.q_end, g_q, g_p)
    mlp = _mlp(arch, step.q_mlp, step.p_mlp, g_q, g_p)
    g_q, g_p = _norm(arch, step.q_mlp, m2 * g_q + mlp[0], m2 * g_p + mlp[1])
    attention = _attention(arch, cells, step, g_q, g_p)
    return a2 * g_q + attention[0], a2 * g_p + attention[1]


def _norm(arch, q, g_q, g_p):
    """Through N: everything is divided by |x| / sqrt(d)."""
    scale = np.where(q + arch.eps > 0, 1 / np.sqrt(np.where(q + arch.eps > 0, q + arch.eps, 1)), 0)
    return g_q * scale**2, g_p * scale[:, None] * scale[None]


def _mlp(arch, q, p, g_q, g_p):
    scale = np.where(q + arch.eps > 0, 1 / np.sqrt(np.where(q + arch.eps > 0, q + arch.eps, 1)), 0)
    n_q, n_p = q * scale**2, p * scale[:, None] * scale[None]
    b2 = arch.std_bias**2
    u_q, u_p = arch.sigma_12 * n_q + b2, arch.sigma_12 * n_p + b2
    square, kernel = slopes(arch.activation, u_q, u_p)
    if arch.gated:
        # d(phi(g) u) = phi'(g) u dg + phi(g) du
        plain, plain_kernel = moments(arch.activation, u_q, u_p)
        square, kernel = square * u_q + plain, kernel * u_p + plain_kernel
    factor = arch.width * arch.std_1**2 * arch.mlp_width * arch.std_2**2
    return factor * square * g_q, factor * kernel * g_p


def _attention(arch, cells: Cells, step: Step, g_q, g_p):
    seen, n, t = step.seen, cells.count_K, cells.length_K
    v = cells.seen_KxJ
    # E[A_ts A_ts] and E[A_ts A_ts'] of one row; the same of two rows.
    own_same = seen.y_q / t
    own_other = np.where(t > 1, (1 - seen.y_q) / np.where(t > 1, t * (t - 1), 1), 0)
    least = np.minimum(t[:, None], t[None])
    pair_same = seen.y_p / least
    count = t[:, None] * t[None] - least
    pair_other = np.where(count > 0, (1 - seen.y_p) / np.where(count > 0, count, 1), 0)
    # How many tokens of cell k see a given one of cell j: those that count_K x seen / size.
    sees_KxJ = n[:, None] * v / n[None]
    alone = np.where(n > 1, n - 1, 0)
    pairs_KxK = np.where(np.eye(len(n), dtype=bool), n[:, None] * alone, n[:, None] * n[None])
    # Two different tokens t, u of cells k, l, both seeing s in cell j.
    share = v / n[None]  # chance that a token of k sees one of j
    both = np.minimum(share[:, None], share[None])
    weight = pairs_KxK * g_p
    same = (own_same * g_q) @ sees_KxJ + np.einsum("kl,klj->j", weight * pair_same, both)
    one = (own_other * g_q * n)[:, None, None] * np.minimum(share[:, :, None], share[:, None, :])
    other = np.sum(one, 0) + share.T @ (weight * pair_other) @ share
    gap = np.maximum(seen.same - np.diagonal(seen.other), 0)
    slope = np.maximum(seen.y_q - 2 * seen.cube + seen.moment, 0)
    scores = arch.score_variance * gap * (gap + seen.n_q) * slope * g_q
    return arch.sigma_v2 * (same + scores), arch.sigma_v2 * other
