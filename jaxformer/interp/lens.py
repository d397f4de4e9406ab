"""What parts of a network say about the next token, and how its heads read each other.

    logit_lens      the logits that each block's states would give if they were the last ones
    attribution     how much of a logit each head and MLP writes, exactly
    qk, ov          the two maps of a head, N x N of rank K, as pairs of thin factors
    svd             the singular values and vectors of such a pair
    composition     how strongly a head's query, key or value reads what an earlier head writes

(nostalgebraist 2020; Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".)
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core import paths
from jaxformer.core.errors import UserError, check_choice
from jaxformer.interp.capture.running import capture, intervene, run, shapes

STATES = r"block_\d+/states"
WRITERS = r"block_\d+/(attn/heads|mlp/output)"
FACTORS = r"(.*/)?\w*norm/factor"
KINDS = ("query", "key", "value")


def logit_lens(model: Any, params: Any, *inputs: Any, names: str = STATES) -> dict[str, jax.Array]:
    """{address of states: logits (B, T, V)}; the last block's are the model's own.

    Any model with addresses: the states are put in place of the last block's, and what follows it
    (norm, unembedding) reads them. They need not be this model's own: see `read_out`.
    """
    found = capture(model, params, *inputs, names=[names])
    stacked = jnp.stack(list(found.values()))
    return dict(zip(found, read_out(model, params, stacked, *inputs)))


def read_out(model: Any, params: Any, states_SxBxTxN: jax.Array, *inputs: Any) -> jax.Array:
    """(S, B, T, V): logits of states as if each were the last block's; one compiled program."""
    return _reader(model)(params, states_SxBxTxN, inputs)


@lru_cache(maxsize=8)
def _reader(model: Any) -> Any:
    def read(params, states, inputs):
        last = f"block_{_blocks(params) - 1}/states"
        # The blocks before the last state do not reach the logits, and are not compiled.
        return jax.lax.map(lambda x: intervene(model, params, *inputs, {last: x}), states)

    return jax.jit(read)


class Attribution(NamedTuple):
    """Of one number: parts {address: (B, T) or (B, T, H)} that add up to total - rest."""

    parts: dict[str, jax.Array]
    total: jax.Array
    rest: jax.Array  # biases


def attribution(
    model: Any, params: Any, *inputs: Any, metric: Callable[[jax.Array], jax.Array]
) -> Attribution:
    """Direct logit attribution of a metric that is linear in the logits, such as one logit minus
    another: what each head, each MLP and the embedding write into it, past all later blocks.

    With the weights of attention and the factors of all norms held, the logits are an affine
    function of what is written, so that slope times value is exact. Only for models whose branches
    add to a stream that is normalised when it is read (pre-norm, or without norms).
    """
    known = shapes(model, params, *inputs)
    written = [a for a in known if re.fullmatch(WRITERS, a)]
    _check_stream(model, known, written)
    written.append("embedded")
    held = [a for a in known if re.fullmatch(FACTORS, a)]
    _, usual = run(model, params, *inputs, names=[re.escape(a) for a in (*written, *held)])

    def of(moved):
        new = {re.escape(a): usual[a] for a in held}
        new |= {re.escape(a): usual[a] + moved[a] for a in written}
        return metric(intervene(model, params, *inputs, new))

    zeros = {a: jnp.zeros_like(usual[a]) for a in written}
    total, slopes = jax.value_and_grad(of)(zeros)
    parts = {a: (slopes[a] * usual[a]).sum(-1) for a in written}
    return Attribution(parts, total, total - sum(part.sum() for part in parts.values()))


def _check_stream(model: Any, known: Any, written: list[str]) -> None:
    blocks = [int(a.split("/")[0].removeprefix("block_")) for a in written]
    if not blocks or ("final_norm/factor" not in known and getattr(model.spec, "use_norm", True)):
        raise UserError(
            "attribution needs a stream to which heads and MLPs add, read by norms: "
            f"{type(model).__name__} has none."
        )


class Factors(NamedTuple):
    """A map left @ right.T from the stream to itself, (N, K) each."""

    left: jax.Array
    right: jax.Array


def qk(model: Any, params: Any, block: int, head: int) -> Factors:
    """W_Q W_K^T: x_q (W_Q W_K^T) x_k^T is the score, up to rotary positions and 1/sqrt(K)."""
    return Factors(
        _head(model, params, block, "query", head), _head(model, params, block, "key", head)
    )


def ov(model: Any, params: Any, block: int, head: int) -> Factors:
    """W_V W_O: what the head writes is the attended mean of x times this."""
    value_NxK = _head(model, params, block, "value", head)
    kernel = _kernel(params, block, "out")
    return Factors(value_NxK, kernel.reshape(_heads(model), -1, kernel.shape[-1])[head].T)


def svd(factors: Factors) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(u (N, K), s (K,), v (N, K)) of left @ right.T, through K x K matrices."""
    ql, rl = jnp.linalg.qr(factors.left)
    qr, rr = jnp.linalg.qr(factors.right)
    u, s, vt = jnp.linalg.svd(rl @ rr.T)
    return ql @ u, s, qr @ vt.T


def composition(model: Any, params: Any, earlier: int, later: int, kind: str) -> np.ndarray:
    """(H, H): |W_OV W| / (|W_OV| |W|) of each head of block `earlier` with each of `later`.

    W is the later head's Q^T K side that reads queries ("query"), that reads keys ("key"), or its
    OV map ("value"). Frobenius norms; the gains of norms in between are left out.
    """
    check_choice("kind of composition", kind, KINDS)
    blocks = _blocks(params)
    if not 0 <= earlier < later < blocks:
        raise UserError(
            f"composition needs blocks 0 <= earlier < later < {blocks}, got {earlier} and {later}."
        )
    heads = range(_heads(model))
    found = np.zeros((len(heads), len(heads)))
    for i in heads:
        first = ov(model, params, earlier, i)
        for j in heads:
            second = ov(model, params, later, j) if kind == "value" else qk(model, params, later, j)
            if kind == "key":
                second = Factors(second.right, second.left)
            both = Factors(first.left, second.right @ (first.right.T @ second.left).T)
            found[i, j] = norm(both) / (norm(first) * norm(second))
    return found


def norm(factors: Factors) -> jax.Array:
    """The Frobenius norm of left @ right.T, without forming it."""
    product = (factors.left.T @ factors.left) * (factors.right.T @ factors.right).T
    return jnp.sqrt(jnp.maximum(product.sum(), 0))


def _head(model: Any, params: Any, block: int, name: str, head: int) -> jax.Array:
    """(N, K) of one head; queries that share keys and values get theirs."""
    heads = _heads(model)
    if not 0 <= head < heads:
        raise UserError(f"block_{block} has the heads 0 to {heads - 1}, got {head}.")
    kernel = _kernel(params, block, name)
    if name != "query":
        groups = getattr(model.spec, "kv_heads", heads)
        head, heads = head // (heads // groups), groups
    return kernel.reshape(kernel.shape[0], heads, -1)[:, head]


def _heads(model: Any) -> int:
    """Of every block; the recall model has one and does not say so."""
    heads = getattr(model.spec, "heads", 1)
    if not isinstance(heads, int):
        raise UserError(f"{type(model).__name__} has no maps of heads from a stream to itself.")
    return heads


def _blocks(params: Any) -> int:
    """How many there are, whatever a model's numbers are called."""
    return sum(bool(re.fullmatch(r"block_\d+", name)) for name in params)


def _kernel(params: Any, block: int, name: str) -> jax.Array:
    flat, path = paths.flatten(params), f"block_{block}/attn/{name}/kernel"
    if path not in flat:
        raise UserError(f"this model has no {path}, which its head's maps are made of.")
    return jnp.asarray(flat[path])
