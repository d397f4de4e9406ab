"""The gradient of any transformer at initialisation, layer by layer, from the slopes of its maps.

g_t is the gradient of the loss with respect to token t of the residual stream. The recursion
follows G_tt = |g_t|^2 and G_tu = g_t.g_u, averaged over random networks. The loss is a random
direction of the last layer, so G_tu starts at 0. Going back through a block, each branch adds, by
the chain rule and independent weights,

    MLP     G_tu += s12 s22 E phi'(u_t) phi'(u_u) G_tu / (|x_t| |x_u|)          (1/|x| comes from N)
    values  G_ss' += sV2 sum_tu E[A_ts A_us'] G_tu / (|x_s| |x_s'|)
    scores  G_tt += sV2 sa2 (C - m) [(C - m) + n_q] (Y_q - 2 Y_3 + Y_4) G_tt / |x_t|^2

with Y_3 = E sum A^3 and Y_4 = E (sum A^2)^2. The score term is the slope of the softmax times the
sum of a part through the query and a part through the keys. The gradient through a key belongs to
the attended token, but is counted at the querying token. Correlations of gradients through the
scores of different tokens are neglected: they vanish as tokens become alike.

`theory.signal.recursion` defines C, m, n_q, u and Y_q. The variances s12, s22, sV2 and sa2 are
`sigma_1_squared`, `sigma_2_squared`, `sigma_v2` and `score_variance` of
`theory.signal.architecture`.

In the code g_q (K,) is G_tt of a token of each cell, and g_p (K, K) is G_tu of two tokens. A cell
is a group of positions (`theory.signal.cells`).
"""

from typing import NamedTuple

import numpy as np

from theory.activation_moments import moments, slopes
from theory.signal.architecture import Architecture
from theory.signal.cells import Cells
from theory.signal.recursion import (
    AttentionState,
    BlockState,
    Trace,
    branch_input,
    hidden_moments,
    norm_factor,
    trace,
)


class Gradients(NamedTuple):
    """The size of the gradient by depth."""

    size: np.ndarray  # (L+1,) rms of dLoss/dx_l over tokens, 1 at the last layer

    @property
    def ratio(self) -> float:
        """The size after the first block over the size after the last block."""
        return float(self.size[..., 1].mean() / self.size[..., -1].mean())


def backward(
    arch: Architecture, length: int, rho0: float | None = None, repeat: float = 0.0
) -> Gradients:
    """Returns the size of the gradient at every layer; arguments as in `recursion.forward`."""
    return gradients(arch, trace(arch, length, rho0, repeat))


def gradients(arch: Architecture, path: Trace) -> Gradients:
    """Returns the size of the gradient at every layer of a forward pass."""
    n = len(path.cells.count_K)
    g_q, g_p = np.ones(n), np.zeros((n, n))
    weight_K = path.cells.count_K / path.cells.count_K.sum()
    sizes = [1.0]
    for block in reversed(path.blocks):
        g_q, g_p = _through_block(arch, path.cells, block, g_q, g_p)
        sizes.append(float(np.sqrt(weight_K @ g_q)))
    return Gradients(np.array(sizes[::-1]))


def _through_block(arch, cells, block: BlockState, g_q, g_p):
    # `mlp`, `attention` and `branch` are pairs (g_q, g_p).
    a2, m2 = arch.alpha_sa**2, arch.alpha_mlp**2
    if arch.parallel:
        mlp = _norm(arch, block.q, *_mlp(arch, block.q, block.p, g_q, g_p))
        attention = _norm(arch, block.q, *_attention(arch, cells, block.attention, g_q, g_p))
        return a2 * g_q + mlp[0] + attention[0], a2 * g_p + mlp[1] + attention[1]
    if arch.pre_norm:
        branch = _output_norm(arch, block.q_mlp_output, g_q, g_p)
        mlp = _input_norm(arch, block.q_mlp, *_mlp(arch, block.q_mlp, block.p_mlp, *branch))
        g_q, g_p = m2 * g_q + mlp[0], m2 * g_p + mlp[1]
        branch = _output_norm(arch, block.q_attention, g_q, g_p)
        attention = _attention(arch, cells, block.attention, *branch)
        attention = _input_norm(arch, block.q, *attention)
        return a2 * g_q + attention[0], a2 * g_p + attention[1]
    # Post-norm.
    g_q, g_p = _norm(arch, block.q_end, g_q, g_p)
    mlp = _mlp(arch, block.q_mlp, block.p_mlp, g_q, g_p)
    g_q, g_p = _norm(arch, block.q_mlp, m2 * g_q + mlp[0], m2 * g_p + mlp[1])
    attention = _attention(arch, cells, block.attention, g_q, g_p)
    return a2 * g_q + attention[0], a2 * g_p + attention[1]


def _norm(arch, q, g_q, g_p):
    """Returns the gradient before N: the gradient after it is divided by |x| / sqrt(d)."""
    factor = norm_factor(q, arch.eps)
    return g_q * factor**2, g_p * factor[:, None] * factor[None]


def _input_norm(arch, q, g_q, g_p):
    return _norm(arch, q, g_q, g_p) if arch.input_norm else (g_q, g_p)


def _output_norm(arch, q, g_q, g_p):
    return _norm(arch, q, g_q, g_p) if arch.output_norm else (g_q, g_p)


def _mlp(arch, q, p, g_q, g_p):
    u_q, u_p = hidden_moments(arch, *branch_input(arch, q, p))
    square, kernel = slopes(arch.activation, u_q, u_p)
    if arch.gated:
        # d(phi(g) u) = phi'(g) u dg + phi(g) du
        value_square, value_kernel = moments(arch.activation, u_q, u_p)
        square, kernel = square * u_q + value_square, kernel * u_p + value_kernel
    factor = arch.width * arch.std_1**2 * arch.mlp_width * arch.std_2**2
    return factor * square * g_q, factor * kernel * g_p


def _attention(arch, cells: Cells, attention: AttentionState, g_q, g_p):
    n, t = cells.count_K, cells.length_K  # positions in each cell, and positions that it sees
    # E[A_ts A_ts] and E[A_ts A_ts'] of one row, then E[A_ts A_us] and E[A_ts A_us'] of two rows.
    # The inner np.where avoids a division by 0 in entries that the outer one sets to 0.
    row_same = attention.y_q / t
    row_other = np.where(t > 1, (1 - attention.y_q) / np.where(t > 1, t * (t - 1), 1), 0)
    shorter = np.minimum(t[:, None], t[None])
    pair_same = attention.y_p / shorter
    n_other = t[:, None] * t[None] - shorter
    pair_other = np.where(n_other > 0, (1 - attention.y_p) / np.where(n_other > 0, n_other, 1), 0)
    # The number of tokens of cell k that see a given token of cell j.
    sees_KxJ = n[:, None] * cells.seen_KxJ / n[None]
    others = np.where(n > 1, n - 1, 0)
    is_diagonal = np.eye(len(n), dtype=bool)
    pairs_KxK = np.where(is_diagonal, n[:, None] * others, n[:, None] * n[None])
    # The probability that a token of cell k sees a given token of cell j, and that two tokens do.
    share = cells.seen_KxJ / n[None]
    both_see = np.minimum(share[:, None], share[None])
    weight = pairs_KxK * g_p
    values_q = (row_same * g_q) @ sees_KxJ
    values_q = values_q + np.einsum("kl,klj->j", weight * pair_same, both_see)
    # The probability that a token of cell k sees a given token of cell i and one of cell j.
    within_row = np.minimum(share[:, :, None], share[:, None, :])
    values_p = np.sum((row_other * g_q * n)[:, None, None] * within_row, 0)
    values_p = values_p + share.T @ (weight * pair_other) @ share
    # In `attention`, `same` is C, `other` is m, `cube` is Y_3 and `moment` is Y_4.
    gap = np.maximum(attention.same - np.diagonal(attention.other), 0)
    slope = np.maximum(attention.y_q - 2 * attention.cube + attention.moment, 0)
    scores = arch.score_variance * gap * (gap + attention.n_q) * slope * g_q
    if arch.qk_norm:
        scores = scores / np.maximum(attention.n_q * attention.same, 1e-300)
    return arch.sigma_v2 * (values_q + scores), arch.sigma_v2 * values_p
