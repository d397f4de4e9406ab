"""The signal of any transformer at initialisation, layer by layer, in NumPy.

The state is q_t = |x_t|^2 / d of each token and p_tu = x_t.x_u / d of each pair. In a bidirectional
network all pairs share one p; in a causal network q and p depend on the positions. With n = N(x)
and A the rows of attention, wide networks map them by

    SA(q_t)  = sV2 [Y_q C + (1 - Y_q) m_tt],     SA(p_tu) = sV2 [Y_p C + (1 - Y_p) m_tu]
    MLP(q_t) = s22 E phi(u_t)^2 + b2,            MLP(p_tu) = s22 E phi(u_t) phi(u_u) + b2

    C         mean of n_s.n_s / d over the tokens s that both t and u see
    m_tu      mean of n_s.n_s' / d over s != s', where t sees s and u sees s'
    Y_q, Y_p  overlaps of `theory.rem` for the number of visible tokens, exact at finite length
    u         hidden layer of the MLP before the activation phi, variance s12 n_q + b2
    n_q       |n_t|^2 / d

sV2, s12 and s22 are `sigma_v2`, `sigma_1_squared` and `sigma_2_squared` of
`theory.signal.architecture`, and b2 is the variance of the MLP's biases.

For the post-norm encoder of arXiv 2505.24333 these are its eqs. 16 to 19 (`encoder_block`).
A branch whose output is normalised adds N(SA) or N(MLP) instead.

Positions are grouped in cells (`cells`).
"""

from typing import NamedTuple

import numpy as np

from jaxformer.core.errors import UserError
from theory.activation_moments import moments
from theory.rem.coordinates import MAX_TABULATED_LENGTH
from theory.signal.architecture import Architecture
from theory.signal.cells import Cells, cells_of, mean_cosine, rotary_factors, visible_means
from theory.signal.encoder_block import attention_average


class Layers(NamedTuple):
    """The signal by depth, averaged over positions and pairs of positions."""

    cosine: np.ndarray  # (L+1,) mean cosine of two tokens; entry 0 is the input of block 0
    norm: np.ndarray  # (L+1,) mean of |x|^2 / d
    self_overlap: np.ndarray  # (L,) mean of sum_s A_ts^2
    entropy: np.ndarray  # (L,) mean entropy of a row in nats


class AttentionState(NamedTuple):
    """The quantities of one attention that the backward pass reads."""

    n_q: np.ndarray  # (K,) q of the normalised tokens
    n_p: np.ndarray  # (K, K) p of the normalised tokens
    same: np.ndarray  # (K,) C
    other: np.ndarray  # (K, K) m
    s2: np.ndarray  # (K,) variance of the scores within a row
    y_q: np.ndarray  # (K,) E sum A^2
    moment: np.ndarray  # (K,) E (sum A^2)^2
    cube: np.ndarray  # (K,) E sum A^3
    y_p: np.ndarray  # (K, K)
    entropy: np.ndarray  # (K,) nats


class BlockState(NamedTuple):
    """The inputs of one block's attention, MLP and last norm, and the outputs of both branches."""

    q: np.ndarray  # (K,) residual stream before attention
    p: np.ndarray  # (K, K)
    q_mlp: np.ndarray  # (K,) residual stream before the MLP (post-norm: before its norm)
    p_mlp: np.ndarray  # (K, K)
    q_end: np.ndarray  # (K,) post-norm: before the last norm
    attention: AttentionState
    q_attention: np.ndarray  # (K,) output of attention, before its norm if it has one
    q_mlp_output: np.ndarray  # (K,) output of the MLP, before its norm if it has one


class Trace(NamedTuple):
    """All intermediate states of a forward pass."""

    cells: Cells
    states: list[tuple[np.ndarray, np.ndarray]]  # (q, p) at depths 0 .. L
    blocks: list[BlockState]


def forward(
    arch: Architecture, length: int, rho0: float | None = None, repeat: float = 0.0
) -> Layers:
    """Returns the signal at every layer.

    Args:
      arch: the network.
      length: number of tokens, 2 to 2^24.
      rho0: cosine of two input tokens; None computes it from the embedding's variances.
      repeat: probability that two input tokens are the same symbol.

    Example:
      >>> bert = huggingface.read_config(Path("config.json")).architecture
      >>> round(float(forward(bert, length=128).cosine[-1]), 3)
      0.617
    """
    return layers_of(trace(arch, length, rho0, repeat))


def layers_of(path: Trace) -> Layers:
    """Returns the averages over positions of a forward pass."""
    weight_K = path.cells.count_K / path.cells.count_K.sum()
    return Layers(
        np.array([mean_cosine(path.cells, q, p) for q, p in path.states]),
        np.array([weight_K @ q for q, _ in path.states]),
        np.array([weight_K @ block.attention.y_q for block in path.blocks]),
        np.array([weight_K @ block.attention.entropy for block in path.blocks]),
    )


def trace(arch: Architecture, length: int, rho0: float | None = None, repeat: float = 0.0) -> Trace:
    """Returns all states of the forward pass; arguments as in `forward`."""
    cells = cells_of(check_length(length), arch.causal)
    q0, p0 = arch.input_moments(rho0, repeat)
    n = len(cells.count_K)
    states, blocks = [(np.full(n, q0), np.full((n, n), p0))], []
    rotary = rotary_factors(cells, arch)
    for _ in range(arch.layers):
        state, block = _through_block(arch, cells, *states[-1], rotary)
        states.append(state)
        blocks.append(block)
    return Trace(cells, states, blocks)


def _through_block(arch: Architecture, cells: Cells, q, p, rotary):
    """Returns (q, p) after one block, and its `BlockState`."""
    a2, m2 = arch.alpha_sa**2, arch.alpha_mlp**2
    attention_input = branch_input(arch, q, p) if arch.pre_norm else (q, p)
    attention = _attention_state(arch, cells, *attention_input, rotary)
    sa_q, sa_p = _attention_output(arch, cells, attention)
    added_q, added_p = _branch_output(arch, sa_q, sa_p)
    q_mlp, p_mlp = a2 * q + added_q, a2 * p + added_p
    if arch.parallel:
        output_q, output_p = _mlp_output(arch, *attention_input)
        state = q_mlp + output_q, p_mlp + output_p
        return state, BlockState(q, p, q, p, state[0], attention, sa_q, output_q)
    mlp_input = branch_input(arch, q_mlp, p_mlp)
    output_q, output_p = _mlp_output(arch, *mlp_input)
    if arch.pre_norm:
        added_q, added_p = _branch_output(arch, output_q, output_p)
        state = m2 * q_mlp + added_q, m2 * p_mlp + added_p
        return state, BlockState(q, p, q_mlp, p_mlp, state[0], attention, sa_q, output_q)
    end_q, end_p = m2 * mlp_input[0] + output_q, m2 * mlp_input[1] + output_p
    state = normalised(end_q, end_p, arch.eps)
    return state, BlockState(q, p, q_mlp, p_mlp, end_q, attention, sa_q, output_q)


def branch_input(arch, q, p):
    """Returns q and p of a branch's input for the residual stream's q and p."""
    return normalised(q, p, arch.eps) if arch.input_norm else (q, p)


def _branch_output(arch, q, p):
    """Returns q and p of what a branch adds to the residual stream."""
    return normalised(q, p, arch.eps) if arch.output_norm else (q, p)


def norm_factor(q, eps):
    """Returns 1 / sqrt(q + eps), the factor of N(x), and 0 for a network of zeros."""
    is_positive = q + eps > 0
    return np.where(is_positive, 1 / np.sqrt(np.where(is_positive, q + eps, 1)), 0)


def normalised(q, p, eps):
    """Returns q and p of N(x)."""
    factor = norm_factor(q, eps)
    return q * factor**2, p * factor[:, None] * factor[None]


def _attention_state(arch, cells: Cells, n_q, n_p, rotary) -> AttentionState:
    rotary_K, rotary_KxK = rotary
    same_K, other_KxK = visible_means(cells, n_q, n_p)
    s2 = arch.score_variance * n_q * np.maximum(same_K - rotary_K * np.diagonal(other_KxK), 0)
    if arch.qk_norm:  # queries and keys are normalised, so their lengths do not matter
        s2 = s2 / np.maximum(n_q * same_K, 1e-300)
    scale = np.sqrt(n_q[:, None] * n_q[None])
    rho = rotary_KxK * n_p / np.where(scale > 0, scale, 1)
    y_q, moment, cube, entropy = cells.rows.statistics(s2)
    y_p = cells.rows.cross_overlap(s2, rho)
    return AttentionState(n_q, n_p, same_K, other_KxK, s2, y_q, moment, cube, y_p, entropy)


def _attention_output(arch, cells: Cells, attention: AttentionState):
    same_K, other_KxK = attention.same, attention.other
    is_shorter = cells.length_K[:, None] <= cells.length_K[None]
    same_KxK = np.where(is_shorter, same_K[:, None], same_K[None])
    q = attention_average(attention.y_q, same_K, np.diagonal(other_KxK))
    p = attention_average(attention.y_p, same_KxK, other_KxK)
    return arch.sigma_v2 * q, arch.sigma_v2 * p


def hidden_moments(arch, n_q, n_p):
    """Returns variances and covariances of the MLP's hidden layer before the activation."""
    return (
        arch.sigma_1_squared * n_q + arch.std_bias**2,
        arch.sigma_1_squared * n_p + arch.std_bias**2,
    )


def _mlp_output(arch, n_q, n_p):
    u_q, u_p = hidden_moments(arch, n_q, n_p)
    square, kernel = moments(arch.activation, u_q, u_p)
    if arch.gated:
        square, kernel = square * u_q, kernel * u_p
    return (
        arch.sigma_2_squared * square + arch.std_bias**2,
        arch.sigma_2_squared * kernel + arch.std_bias**2,
    )


def check_length(length: int, name: str = "length") -> int:
    """Returns the length; raises UserError unless it is a whole number the tables cover."""
    is_whole = isinstance(length, int) and not isinstance(length, bool)
    if not is_whole or not 2 <= length <= MAX_TABULATED_LENGTH:
        raise UserError(
            f"{name} must be a whole number from 2 to {MAX_TABULATED_LENGTH:.0f}, got {length!r}."
        )
    return length
