"""Deep multi-head attention that attends from the bare input and is linear in its values.

The model of arXiv 2405.15926, eqs. (1)-(4), with tokens x_t in R^n, hidden widths N_1 .. N_{L+1}:

    z^(1)_t   = V^(0) x_t / sqrt(n)
    z^(l+1)_t = (N_l H_l)^(-1/2) sum_h sum_s V^(l)h z^(l)_s Omega^(l)h_st        l = 1 .. L
    f         = N_{L+1}^(-1/2) a . z^(L+1)_t*                          t*: one token, or f's mean
    Omega^(l)h_st = softmax_s[(K^(l)h x_s) . (Q^(l)h x_t) / sqrt(G)]

so that f is a sum over the paths pi = (h_1 .. h_L), exactly:

    f = (prod_l H_l n)^(-1/2) sum_pi V_eff^pi . xi^pi
    xi^pi      = sum_{s_1..s_L} x_{s_1} Omega^(1)h_1_{s_1 s_2} .. Omega^(L)h_L_{s_L t*}
    V_eff^pi   = a^T V^(L)h_L .. V^(1)h_1 V^(0) / sqrt(N_1 .. N_{L+1})

Shape letters: B batch, T (S) tokens, H heads, D paths, n token dimension, N width, G query width.
The path index is flat and row-major: h_1 slowest.
"""

from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxformer.errors import UserError, unknown
from jaxformer.models.attention import attention_scores, attention_weights

READOUTS = ("first", "last", "mean")
PARAMETERIZATIONS = ("prior", "standard")


def readout_queries(tokens_BxTxn, readout: str):
    """The tokens whose output is read: one of them (its axis kept) or, for the mean, all."""
    if readout not in READOUTS:
        raise unknown("readout", readout, READOUTS)
    chosen = {"first": slice(0, 1), "last": slice(-1, None), "mean": slice(None)}
    return tokens_BxTxn[:, chosen[readout]]


def attentioned_input(tokens_BxTxn, maps: Sequence[Any]):
    """xi^pi for every path, (B, D, n), from maps Omega^(l) of shape (B, H_l, key s, query t).

    The last map holds the queries that are read, one or several, and is averaged over them.
    Only operators: NumPy arrays (float64 without x64) and JAX arrays pass alike.
    """
    if not maps:
        raise UserError("attentioned_input needs the attention maps of at least one layer.")
    path_BxDxS = maps[-1].mean(-1)
    for map_BxHxSxT in maps[-2::-1]:
        path_BxHxSxD = map_BxHxSxT @ path_BxDxS.swapaxes(1, 2)[:, None]
        path_BxHxDxS = path_BxHxSxD.swapaxes(2, 3)
        path_BxDxS = path_BxHxDxS.reshape(len(tokens_BxTxn), -1, path_BxHxDxS.shape[-1])
    return path_BxDxS @ tokens_BxTxn


def path_products(readout_N: jax.Array, values: Sequence[jax.Array]) -> jax.Array:
    """a^T V^(L)h_L .. V^(1)h_1 for every path, (D, N_1), from values of shape (N_l, H_l, N_{l+1}).

    Divided by sqrt(N_2 .. N_{L+1}) this is v^(1), and U = v^(1) v^(1)T / N_1 is the order
    parameter of these weights.
    """
    v_DxO = readout_N[None]
    for value_IxHxO in reversed(values):
        v_DxO = jnp.einsum("iho,do->hdi", value_IxHxO, v_DxO).reshape(-1, len(value_IxHxO))
    return v_DxO


class AttentionPaths(nn.Module):
    """f of the module docstring, (B,), from tokens (B, T, n); one forward by tokens, one by paths.

    heads: (H_1 .. H_L); widths: a number or (N_1 .. N_{L+1}); query_width: G.
    parameterization "prior": weights N(0, 1), each layer divides by sqrt(fan-in), as above.
    "standard", like "prior" except that the weights are drawn from U(-1, 1)/sqrt(fan-in) and the
    layers divide by nothing but sqrt(H): the network that is trained by gradient descent.
    Attention given as `maps` (fixed heads of a task) needs, and creates, no queries and keys.
    """

    heads: tuple[int, ...]
    widths: int | tuple[int, ...]
    query_width: int = 1
    readout: str = "last"
    parameterization: str = "prior"
    param_dtype: Any = jnp.float32

    def setup(self):
        if self.parameterization not in PARAMETERIZATIONS:
            raise unknown("parameterization", self.parameterization, PARAMETERIZATIONS)
        widths = self.hidden_widths()
        scaled = {"parameterization": self.parameterization, "param_dtype": self.param_dtype}
        self.embed = ScaledKernel((widths[0],), **scaled, name="embed")
        self.blocks = [
            Block(heads, width, self.query_width, **scaled, name=f"block_{i}")
            for i, (heads, width) in enumerate(zip(self.heads, widths[1:]))
        ]
        self.out = ScaledKernel((), **scaled, name="readout")

    def hidden_widths(self) -> tuple[int, ...]:
        """(N_1 .. N_{L+1})."""
        layers = len(self.heads) + 1
        widths = (self.widths,) * layers if isinstance(self.widths, int) else tuple(self.widths)
        if len(widths) != layers:
            raise UserError(
                f"{len(self.heads)} attention layers have {layers} hidden widths N_1 .. "
                f"N_{layers}, got {len(widths)}; give one number for all, or {layers}."
            )
        return widths

    def __call__(self, tokens_BxTxn, maps: Sequence | None = None, kept: Sequence | None = None):
        """By tokens. `kept`: 0/1 arrays (H_l,); a layer's head sum is scaled by #kept^(-1/2)."""
        maps = self.maps(tokens_BxTxn) if maps is None else maps
        z_BxTxN = tokens_BxTxn @ self.embed(tokens_BxTxn.shape[-1])
        for i, (block, map_BxHxSxT) in enumerate(zip(self.blocks, maps)):
            z_BxTxN = block.attn(z_BxTxN, map_BxHxSxT, None if kept is None else kept[i])
        return (z_BxTxN @ self.out(z_BxTxN.shape[-1])).mean(-1)

    def maps(self, tokens_BxTxn) -> list[jax.Array]:
        """Omega^(l), (B, H_l, S, T); the last one at the queries that are read."""
        queries = [tokens_BxTxn] * (len(self.heads) - 1)
        queries.append(readout_queries(tokens_BxTxn, self.readout))
        return [block.attn.maps(tokens_BxTxn, q) for block, q in zip(self.blocks, queries)]

    def attentioned_input(self, tokens_BxTxn) -> jax.Array:
        """xi, (B, D, n): a function of queries and keys alone; when these are fixed, once."""
        return attentioned_input(tokens_BxTxn, self.maps(tokens_BxTxn))

    def from_attentioned(self, xi_BxDxn) -> jax.Array:
        """By paths: the same f as by tokens, at a cost without T."""
        _, weights_Dxn = self.path_weights(xi_BxDxn.shape[-1])
        return jnp.einsum("bdn,dn->b", xi_BxDxn, weights_Dxn) * weights_Dxn.size**-0.5

    def path_weights(self, n: int) -> tuple[jax.Array, jax.Array]:
        """v^(1) / sqrt(N_1), (D, N_1), whose Gram matrix is U, and V_eff, (D, n)."""
        widths = self.hidden_widths()
        values = [block.attn.value(width) for block, width in zip(self.blocks, widths)]
        v_DxN = path_products(self.out(widths[-1]), values)
        return v_DxN, v_DxN @ self.embed(n).T * n**0.5


class Block(nn.Module):
    """A layer is its attention alone: no residual, no MLP."""

    heads: int
    width: int
    query_width: int
    parameterization: str
    param_dtype: Any

    def setup(self):
        self.attn = PathAttention(
            self.heads,
            self.width,
            self.query_width,
            self.parameterization,
            self.param_dtype,
            name="attn",
        )


class PathAttention(nn.Module):
    """Queries and keys act on the bare input, values on the stream below."""

    heads: int
    width: int
    query_width: int
    parameterization: str
    param_dtype: Any

    def setup(self):
        scaled = {"parameterization": self.parameterization, "param_dtype": self.param_dtype}
        self.query = ScaledKernel((self.heads, self.query_width), **scaled, name="query")
        self.key = ScaledKernel((self.heads, self.query_width), **scaled, name="key")
        self.value = ScaledKernel((self.heads, self.width), **scaled, name="value")

    def maps(self, tokens_BxSxn, queries_BxTxn):
        """Omega_st, (B, H, S, T): a softmax over the keys s."""
        n = tokens_BxSxn.shape[-1]
        query_BxTxHxG = jnp.einsum("btn,nhg->bthg", queries_BxTxn, self.query(n))
        key_BxSxHxG = jnp.einsum("bsn,nhg->bshg", tokens_BxSxn, self.key(n))
        scores_BxHxTxS = attention_scores(query_BxTxHxG, key_BxSxHxG)
        maps_BxHxSxT = attention_weights(scores_BxHxTxS).swapaxes(2, 3)
        self.sow("intermediates", "maps", maps_BxHxSxT)
        return maps_BxHxSxT

    def __call__(self, z_BxSxI, maps_BxHxSxT, kept_H=None):
        value_IxHxO = self.value(z_BxSxI.shape[-1])
        heads = self.heads
        if kept_H is not None:
            heads = jnp.maximum(kept_H.sum(), 1)
            value_IxHxO = value_IxHxO * kept_H[None, :, None]
        mixed_BxTxHxI = jnp.einsum("bsi,bhst->bthi", z_BxSxI, maps_BxHxSxT)
        return jnp.einsum("bthi,iho->bto", mixed_BxTxHxI, value_IxHxO) * heads**-0.5


class ScaledKernel(nn.Module):
    """A parameter `kernel` of shape (inputs, *outputs), handed out at variance 1/inputs."""

    outputs: tuple[int, ...]
    parameterization: str
    param_dtype: Any

    @nn.compact
    def __call__(self, inputs: int) -> jax.Array:
        prior = self.parameterization == "prior"
        init = jax.nn.initializers.normal(1.0) if prior else _uniform_fan_in
        kernel = self.param("kernel", init, (inputs, *self.outputs), self.param_dtype)
        return kernel * inputs**-0.5 if prior else kernel


def _uniform_fan_in(key, shape, dtype):
    return jax.random.uniform(key, shape, dtype, -1, 1) * shape[0] ** -0.5
