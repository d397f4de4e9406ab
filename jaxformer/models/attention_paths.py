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
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxformer.core.errors import UserError, check_range, unknown
from jaxformer.models.activation_points import point
from jaxformer.models.attention import attention_scores, attention_weights
from jaxformer.models.model import MOST
from jaxformer.models.path_features import READOUTS, attentioned_input, readout_queries

PARAMETERIZATIONS = ("prior", "standard")
Maps = Sequence[Any] | None  # an array a layer


@dataclass(frozen=True)
class AttentionPathsSpec:
    """Every number of an attention-path network.

    parameterization "prior": weights N(0, 1), each layer divides by sqrt(fan-in), as above.
    "standard", like "prior" except that the weights are drawn from U(-1, 1)/sqrt(fan-in) and the
    layers divide by nothing but sqrt(H): the network that is trained by gradient descent.
    """

    heads: tuple[int, ...]  # (H_1 .. H_L)
    width: int | tuple[int, ...]  # a number for all, or (N_1 .. N_{L+1})
    query_width: int = 1  # G
    readout: str = "last"
    parameterization: str = "prior"
    vocab_size: int = 0  # tokens are vectors, the answer is a number
    length: int = 0  # nothing here depends on it
    causal: bool = False
    param_dtype: Any = float

    def __post_init__(self):
        if self.parameterization not in PARAMETERIZATIONS:
            raise unknown("parameterization", self.parameterization, PARAMETERIZATIONS)
        if self.readout not in READOUTS:
            raise unknown("readout", self.readout, READOUTS)
        if self.vocab_size:
            raise UserError(
                "attention paths read vectors: the task must have vocab_size 0, got "
                f"{self.vocab_size}."
            )
        if self.causal:
            raise UserError(
                "attention paths need causal=False: they run through all tokens, got causal=True."
            )
        check_range("the number of layers (model.heads)", len(self.heads), 1, MOST["layers"])
        for size in (*self.heads, *self.widths, self.query_width):
            check_range("each of heads, width and query_width", size, 1, MOST["width"])
        layers = len(self.heads) + 1
        if len(self.widths) != layers:
            raise UserError(
                f"{len(self.heads)} attention layers have {layers} hidden widths N_1 .. "
                f"N_{layers}, got {len(self.widths)}; give one number for all, or {layers}."
            )

    @property
    def widths(self) -> tuple[int, ...]:
        """(N_1 .. N_{L+1})."""
        if isinstance(self.width, int):
            return (self.width,) * (len(self.heads) + 1)
        return tuple(self.width)


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

    Attention given as `maps` (fixed heads of a task) needs, and creates, no queries and keys.
    """

    spec: AttentionPathsSpec

    def setup(self):
        layers = range(len(self.spec.heads))
        self.embed = ScaledKernel(self.spec, self.spec.widths[:1], name="embed")
        self.blocks = [Block(self.spec, i, name=f"block_{i}") for i in layers]
        self.out = ScaledKernel(self.spec, (), name="readout")

    def __call__(self, tokens_BxTxn, positions=None, *, maps: Maps = None, kept: Maps = None):
        """By tokens. `kept`: 0/1 arrays (H_l,); a layer's head sum is scaled by #kept^(-1/2)."""
        if positions is not None:
            raise UserError(
                "attention paths answer with one number a sequence: positions must be None, got "
                f"the shape {jnp.shape(positions)}."
            )
        maps = self.maps(tokens_BxTxn) if maps is None else maps
        z_BxTxN = point(self, "embedded", tokens_BxTxn @ self.embed(tokens_BxTxn.shape[-1]))
        for i, (block, map_BxHxSxT) in enumerate(zip(self.blocks, maps)):
            z_BxTxN = block.attn(z_BxTxN, map_BxHxSxT, None if kept is None else kept[i])
        return point(self, "logits", (z_BxTxN @ self.out(z_BxTxN.shape[-1])).mean(-1))

    def input_width(self, params: Any = None) -> int:
        """The n of these parameters; without any, one of all that are possible."""
        return 2 if params is None else params["embed"]["kernel"].shape[0]

    def maps(self, tokens_BxTxn) -> list[jax.Array]:
        """Omega^(l), (B, H_l, S, T); the last one at the queries that are read."""
        queries = [tokens_BxTxn] * (len(self.spec.heads) - 1)
        queries.append(readout_queries(tokens_BxTxn, self.spec.readout))
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
        widths = self.spec.widths
        values = [block.attn.value(width) for block, width in zip(self.blocks, widths)]
        v_DxN = path_products(self.out(widths[-1]), values)
        return v_DxN, v_DxN @ self.embed(n).T * n**0.5


class Block(nn.Module):
    """A layer is its attention alone: no residual, no MLP."""

    spec: AttentionPathsSpec
    layer: int

    def setup(self):
        self.attn = PathAttention(self.spec, self.layer, name="attn")


class PathAttention(nn.Module):
    """Queries and keys act on the bare input, values on the stream below."""

    spec: AttentionPathsSpec
    layer: int

    def setup(self):
        spec, heads = self.spec, self.spec.heads[self.layer]
        self.query = ScaledKernel(spec, (heads, spec.query_width), name="query")
        self.key = ScaledKernel(spec, (heads, spec.query_width), name="key")
        self.value = ScaledKernel(spec, (heads, spec.widths[self.layer + 1]), name="value")

    def maps(self, tokens_BxSxn, queries_BxTxn):
        """Omega_st, (B, H, S, T): a softmax over the keys s."""
        n = tokens_BxSxn.shape[-1]
        query_BxTxHxG = jnp.einsum("btn,nhg->bthg", queries_BxTxn, self.query(n))
        key_BxSxHxG = jnp.einsum("bsn,nhg->bshg", tokens_BxSxn, self.key(n))
        query_BxTxHxG = point(self, "queries", query_BxTxHxG)
        key_BxSxHxG = point(self, "keys", key_BxSxHxG)
        scores_BxHxTxS = point(self, "scores", attention_scores(query_BxTxHxG, key_BxSxHxG))
        weights_BxHxTxS = point(self, "weights", attention_weights(scores_BxHxTxS))
        return point(self, "maps", weights_BxHxTxS.swapaxes(2, 3), plotted=True)

    def __call__(self, z_BxSxI, maps_BxHxSxT, kept_H=None):
        value_IxHxO = self.value(z_BxSxI.shape[-1])
        heads = self.spec.heads[self.layer]
        if kept_H is not None:
            heads = jnp.maximum(kept_H.sum(), 1)
            value_IxHxO = value_IxHxO * kept_H[None, :, None]
        mixed_BxTxHxI = jnp.einsum("bsi,bhst->bthi", z_BxSxI, maps_BxHxSxT)
        mixed_BxTxHxI = point(self, "mixed", mixed_BxTxHxI)
        out_BxTxO = jnp.einsum("bthi,iho->bto", mixed_BxTxHxI, value_IxHxO) * heads**-0.5
        return point(self, "output", out_BxTxO)


class ScaledKernel(nn.Module):
    """A parameter `kernel` of shape (inputs, *outputs), handed out at variance 1/inputs."""

    spec: AttentionPathsSpec
    outputs: tuple[int, ...]

    @nn.compact
    def __call__(self, inputs: int) -> jax.Array:
        prior = self.spec.parameterization == "prior"
        init = jax.nn.initializers.normal(1.0) if prior else _uniform_fan_in
        kernel = self.param("kernel", init, (inputs, *self.outputs), self.spec.param_dtype)
        return kernel * inputs**-0.5 if prior else kernel


def _uniform_fan_in(key, shape, dtype):
    return jax.random.uniform(key, shape, dtype, -1, 1) * shape[0] ** -0.5


def attention_paths(**numbers) -> AttentionPaths:
    """The network with the numbers of an `AttentionPathsSpec`."""
    return AttentionPaths(AttentionPathsSpec(**numbers))
