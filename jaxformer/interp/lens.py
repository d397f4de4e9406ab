"""Lenses: what parts of a network contribute to its logits, and how its heads compose.

    logit_lens         the logits of each block's states, as if they were the last block's
    stream_logit_lens  the same, with the logits of one block in memory at a time
    attribution        the exact contribution of each head and MLP to a logit
    qk, ov             the two maps of a head, N x N matrices of rank D, as pairs of (N, D) factors
    svd                the singular values and vectors of such a pair
    composition        how strongly a head reads the output of an earlier head

Shape letters: see `jaxformer.interp`. In this module S counts residual states.

Sources: nostalgebraist 2020 (logit lens); Elhage et al. 2021, "A Mathematical Framework for
Transformer Circuits" (the other functions).
"""

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxformer.core import paths
from jaxformer.core.adapters import kernel_in_effect
from jaxformer.core.errors import UserError, check_choice
from jaxformer.interp.capture.metric import scalar
from jaxformer.interp.capture.running import capture, intervene, run, shapes
from jaxformer.interp.programs import compiled
from jaxformer.models.model import take_positions
from jaxformer.models.texts import as_tokens

STATES = r"block_\d+/states"
WRITERS = r"block_\d+/(attn/heads|mlp/output)"
FACTORS = r"(.*/)?\w*norm/factor"
Positions = int | Sequence[int] | jax.Array | None
KINDS = ("query", "key", "value")
NONLINEAR = 1e-3  # the share by which a linear metric may miss its multiples by rounding


def logit_lens(
    model: Any, params: Any, *inputs: Any, names: str = STATES, positions: Positions = None
) -> dict[str, jax.Array]:
    """Returns {address of states: logits (B, T, V)}, in the order of blocks.

    The states replace those of the last block, which the final norm and the unembedding read. The
    entry of the last block is the model's output.

    Args:
        model: a model with activation addresses.
        params: its parameters.
        inputs: the model's inputs.
        names: a pattern of residual states, such as `block_[0-9]+/(between|states)`. For a wrapped
            module it must match the states that the last block returns, such as
            `blocks_[0-9]+/output`.
        positions: an index, indices (K,) or an array (B, K) of positions at which to read; the
            logits are then (B, K, V). Negative ones count from the end. By default all.

    Example:
        last = logit_lens(model, params, tokens, positions=-1)["block_3/states"][:, 0]
    """
    states, inputs = _states(model, params, inputs, names, positions)
    if any(isinstance(x, Tracer) for x in jax.tree.leaves((params, states))):
        stacked = jnp.stack(list(states.values()))  # one traced body for all blocks
        reader = compiled(_read, model, _last_states(params, states))
        return dict(zip(states, reader(params, stacked, inputs)))
    return dict(_read_each(model, params, states, inputs))


def stream_logit_lens(
    model: Any, params: Any, *inputs: Any, names: str = STATES, positions: Positions = None
) -> Iterator[tuple[str, jax.Array]]:
    """Yields the entries of `logit_lens` one by one, with the logits of one block in memory.

    Args:
        model: a model with activation addresses.
        params: its parameters.
        *inputs: the inputs of the model, such as tokens (B, T).
        names: a pattern of residual states, as in `logit_lens`.
        positions: the positions at which to read, as in `logit_lens`.

    Example:
        lens = stream_logit_lens(model, params, tokens)
        best = {address: logits.argmax(-1) for address, logits in lens}
    """
    states, inputs = _states(model, params, inputs, names, positions)
    yield from _read_each(model, params, states, inputs)


def _states(
    model: Any, params: Any, inputs: tuple[Any, ...], names: str, positions: Positions
) -> tuple[dict[str, jax.Array], tuple[Any, ...]]:
    """Returns the states and the inputs, both at the positions to read."""
    inputs = (as_tokens(model, inputs[0]), *inputs[1:])
    states = capture(model, params, *inputs, names=[names])
    if positions is None:
        return states, inputs
    n_batch, length = jnp.shape(inputs[0])[:2]
    index = jnp.atleast_1d(jnp.asarray(positions))
    if not isinstance(index, Tracer) and index.size:
        lowest, highest = int(index.min()), int(index.max())
        if lowest < -length or highest >= length:
            raise UserError(f"positions are from {-length} to {length - 1}, got {positions}.")
    index = jnp.where(index < 0, index + length, index)
    index_BxK = jnp.broadcast_to(index, (n_batch, index.shape[-1]))
    # Norm and unembedding read each position alone and ignore the tokens. The model still takes
    # tokens, whose shape must be that of the states.
    tokens_BxK = take_positions(jnp.asarray(inputs[0]), index_BxK)
    return {a: take_positions(x, index_BxK) for a, x in states.items()}, (tokens_BxK,)


def _read_each(
    model: Any, params: Any, states: dict[str, jax.Array], inputs: Any
) -> Iterator[tuple[str, jax.Array]]:
    read = compiled(_read, model, _last_states(params, states))
    for address, states_BxTxN in states.items():
        yield address, read(params, states_BxTxN[None], inputs)[0]


def _last_states(params: Any, states: dict[str, jax.Array]) -> str:
    """The address from which the final norm reads: that of the last block, whatever its name."""
    blocks = _count_blocks(params)
    return f"block_{blocks - 1}/states" if blocks else list(states)[-1]


def _read(model, last, params, states_SxBxTxN, inputs):
    """Returns the logits (S, B, T, V) of states as those of the last block; for use inside jit."""
    # Earlier blocks do not affect the logits, so XLA removes them.
    new = re.escape(last)
    return jax.lax.map(lambda x: intervene(model, params, *inputs, {new: x}), states_SxBxTxN)


class Attribution(NamedTuple):
    """Contributions to a metric of the logits. The parts and the rest sum to the total."""

    parts: dict[str, jax.Array]  # {address: (B, T), or (B, T, H) of heads}
    total: jax.Array  # the metric
    rest: jax.Array  # the contribution of the biases


def attribution(
    model: Any, params: Any, *inputs: Any, metric: Callable[[jax.Array], jax.Array]
) -> Attribution:
    """Returns the direct contributions of heads, MLPs and embedding to a metric of the logits.

    With constant attention weights and norm factors the logits are an affine function of the
    branches' outputs, so that slope times value is exact. The model must be pre-norm or without
    norms. A soft cap of the logits (Gemma 2) is not affine: the slopes are exact, and `rest` also
    contains what a linear approximation misses.

    Args:
        model: a model with activation addresses.
        params: its parameters.
        inputs: the model's inputs.
        metric: a linear function of the logits (B, T, V) that returns a number, such as the
            difference of two logits. A probability or its logarithm is not linear: then the parts
            are slopes times values, which do not add up to the metric, and a warning says so.
    """
    addresses = shapes(model, params, *inputs)
    writers = [a for a in addresses if re.fullmatch(WRITERS, a)]
    _check_stream(model, addresses, writers)
    writers.insert(0, "embedded")
    factors = [a for a in addresses if re.fullmatch(FACTORS, a)]
    logits, values = run(model, params, *inputs, names=[re.escape(a) for a in (*writers, *factors)])
    _warn_unless_linear(metric, logits)

    def shifted_metric(shifts):
        new = {re.escape(a): values[a] for a in factors}
        new |= {re.escape(a): values[a] + shifts[a] for a in writers}
        return scalar(metric, intervene(model, params, *inputs, new))

    no_shifts = {a: jnp.zeros_like(values[a]) for a in writers}
    total, slopes = jax.value_and_grad(shifted_metric)(no_shifts)
    parts = {a: (slopes[a] * values[a]).sum(-1) for a in writers}
    return Attribution(parts, total, total - sum(part.sum() for part in parts.values()))


def _warn_unless_linear(metric: Callable[[jax.Array], jax.Array], logits: jax.Array) -> None:
    """Warns if the metric is no linear function, with a constant perhaps, of some logits."""
    if isinstance(logits, Tracer):
        return
    multiples = (float(scalar(metric, x * logits.astype(jnp.float32))) for x in (0, 1, -1, 2))
    at_zero, at_one, at_minus_one, at_two = multiples
    bends = (at_one + at_minus_one - 2 * at_zero, at_two + at_zero - 2 * at_one)
    size = abs(at_zero) + abs(at_one) + abs(at_two)
    if max(map(abs, bends)) > NONLINEAR * size:
        warnings.warn(
            "the metric is not linear in the logits, so `rest` has more than the biases: take a "
            "difference of logits instead, such as logits[0, -1, a] - logits[0, -1, b].",
            stacklevel=3,
        )


def _check_stream(model: Any, addresses: Any, writers: list[str]) -> None:
    """Raises UserError unless heads and MLPs add to a residual stream that a final norm reads."""
    uses_norm = getattr(model.spec, "use_norm", True)
    if not writers or (uses_norm and "final_norm/factor" not in addresses):
        raise UserError(
            "attribution needs a residual stream to which heads and MLPs add and which norms read; "
            f"{type(model).__name__} has none."
        )


class Factors(NamedTuple):
    """The map left @ right.T of the residual stream, as two factors (N, D)."""

    left: jax.Array
    right: jax.Array


def qk(model: Any, params: Any, block: int, head: int) -> Factors:
    """Returns W_Q W_K^T of a head.

    x_q (W_Q W_K^T) x_k^T is the head's score without rotary positions and the factor 1/sqrt(D).

    Args:
        model: a model with activation addresses.
        params: its parameters.
        block: the number of the block.
        head: the number of the head.

    Returns:
        The factors W_Q and W_K, each (N, D).
    """
    query_NxD = _head_weights(model, params, block, "query", head)
    key_NxD = _head_weights(model, params, block, "key", head)
    return Factors(query_NxD, key_NxD)


def ov(model: Any, params: Any, block: int, head: int) -> Factors:
    """Returns W_V W_O of a head, which maps the attended mean of x to the head's output.

    Args:
        model, params, block, head: as in `qk`.

    Returns:
        The factors W_V, (N, D), and W_O^T, (N, D).
    """
    value_NxD = _head_weights(model, params, block, "value", head)
    kernel = _kernel(params, block, "out")
    out_HxDxN = kernel.reshape(_count_heads(model), -1, kernel.shape[-1])
    return Factors(value_NxD, out_HxDxN[head].T)


def svd(factors: Factors) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns (u (N, D), s (D,), v (N, D)) of left @ right.T; no N x N matrix is formed."""
    q_left, r_left = jnp.linalg.qr(factors.left)
    q_right, r_right = jnp.linalg.qr(factors.right)
    u, s, vt = jnp.linalg.svd(r_left @ r_right.T)
    return q_left @ u, s, q_right @ vt.T


def composition(model: Any, params: Any, earlier: int, later: int, kind: str) -> np.ndarray:
    """Returns |W_OV W| / (|W_OV| |W|) of each earlier head (rows) with each later head, (H, H).

    W is the map of the later head that reads the earlier one. The norms are Frobenius norms; the
    gains of norm layers are left out.

    Args:
        model, params: a model and its parameters.
        earlier: the block of W_OV.
        later: the block of W.
        kind: "query" (W = W_Q W_K^T), "key" (its transpose) or "value" (W_V W_O).
    """
    check_choice("kind of composition", kind, KINDS)
    blocks = _count_blocks(params)
    if not 0 <= earlier < later < blocks:
        raise UserError(
            f"composition needs blocks 0 <= earlier < later < {blocks}, got {earlier} and {later}."
        )
    heads = range(_count_heads(model))
    strength = np.zeros((len(heads), len(heads)))
    for i in heads:
        first = ov(model, params, earlier, i)
        for j in heads:
            second = ov(model, params, later, j) if kind == "value" else qk(model, params, later, j)
            if kind == "key":
                second = Factors(second.right, second.left)
            # The product (A B^T)(C D^T) has the factors A and D (B^T C)^T.
            product = Factors(first.left, second.right @ (first.right.T @ second.left).T)
            strength[i, j] = norm(product) / (norm(first) * norm(second))
    return strength


def norm(factors: Factors) -> jax.Array:
    """Returns the Frobenius norm of left @ right.T without forming this N x N matrix."""
    product = (factors.left.T @ factors.left) * (factors.right.T @ factors.right).T
    return jnp.sqrt(jnp.maximum(product.sum(), 0))


def _head_weights(model: Any, params: Any, block: int, name: str, head: int) -> jax.Array:
    """Returns the weights (N, D) of a head's query, key or value.

    With grouped queries several heads share the weights of one key and value head.
    """
    heads = _count_heads(model)
    if not 0 <= head < heads:
        raise UserError(f"block_{block} has the heads 0 to {heads - 1}, got {head}.")
    kernel = _kernel(params, block, name)
    if name != "query":
        groups = getattr(model.spec, "kv_heads", heads)
        head, heads = head // (heads // groups), groups
    return kernel.reshape(kernel.shape[0], heads, -1)[:, head]


def _count_heads(model: Any) -> int:
    """Returns the number of heads; the recall model has one and no field for it."""
    heads = getattr(model.spec, "heads", 1)
    if not isinstance(heads, int):
        raise UserError(
            f"{type(model).__name__} has no heads that read and write one residual stream."
        )
    return heads


def _count_blocks(params: Any) -> int:
    return sum(bool(re.fullmatch(r"block_\d+", name)) for name in params)


def _kernel(params: Any, block: int, name: str) -> jax.Array:
    flat, path = paths.flatten(params), f"block_{block}/attn/{name}/kernel"
    if path not in flat:
        raise UserError(f"this model has no {path}, which the maps of a head need.")
    return kernel_in_effect(params[f"block_{block}"]["attn"][name])
