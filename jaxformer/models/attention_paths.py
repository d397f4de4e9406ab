"""Deep multi-head attention, linear in its values; queries and keys come from the network's input.

The model of arXiv 2405.15926, eqs. (1)-(4), with tokens x_t in R^n, hidden widths N_1 .. N_{L+1}:

    z^(1)_t   = V^(0) x_t / sqrt(n)
    z^(l+1)_t = (N_l H_l)^(-1/2) sum_h sum_s V^(l)h z^(l)_s Omega^(l)h_st        l = 1 .. L
    f         = N_{L+1}^(-1/2) a . z^(L+1)_t*                 the output; t*: the token that is read
    Omega^(l)h_st = softmax_s[(K^(l)h x_s) . (Q^(l)h x_t) / sqrt(G)]

V, K and Q are weights of values, keys and queries, a those of the readout; layer l has H_l heads.
The readout "mean" averages f over all t*. f is exactly a sum over the paths pi = (h_1 .. h_L), with
the attentioned input xi and the effective weights V_eff:

    f = (prod_l H_l n)^(-1/2) sum_pi V_eff^pi . xi^pi
    xi^pi      = sum_{s_1..s_L} x_{s_1} Omega^(1)h_1_{s_1 s_2} .. Omega^(L)h_L_{s_L t*}
    V_eff^pi   = a^T V^(L)h_L .. V^(1)h_1 V^(0) / sqrt(N_1 .. N_{L+1})

Shape letters: n token dimension, P paths, I and O the widths N_l and N_{l+1}, D the query width G,
the others as in `jaxformer.models`. The path index is flat and row-major: h_1 varies slowest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxformer.core.errors import UserError, check_range, unknown
from jaxformer.models.activation_points import tap
from jaxformer.models.attention import attention_scores, attention_weights
from jaxformer.models.model import MAX_SIZES, make_spec
from jaxformer.models.path_features import READOUTS, attentioned_input, readout_queries
from jaxformer.models.source import Loadable

PARAMETERIZATIONS = ("prior", "standard")
Maps = Sequence[Any] | None  # an array for each layer


@dataclass(frozen=True)
class AttentionPathsSpec:
    """The hyperparameters of an attention-path network.

    The parameterization "prior" has weights N(0, 1), and each layer divides by sqrt(fan-in), as in
    the equations. "standard", for gradient descent, draws weights from U(-1, 1)/sqrt(fan-in), and
    layers divide by sqrt(H) only.
    """

    heads: tuple[int, ...]  # of each layer, (H_1 .. H_L)
    width: int | tuple[int, ...]  # the hidden widths (N_1 .. N_{L+1}), or a number for all
    query_width: int = 1  # G, the width of queries and keys
    readout: str = "last"  # the tokens t* that are read: first | last | mean
    parameterization: str = "prior"  # initial weights and factors of layers: prior | standard
    vocab_size: int = 0  # must be 0: tokens are vectors, the output is a number
    length: int = 0  # a field of every spec; not used here
    causal: bool = False  # must be False: each token attends to all tokens
    param_dtype: Any = float  # of the stored parameters

    def __post_init__(self):
        if self.parameterization not in PARAMETERIZATIONS:
            raise unknown("parameterization", self.parameterization, PARAMETERIZATIONS)
        if self.readout not in READOUTS:
            raise unknown("readout", self.readout, READOUTS)
        if self.vocab_size:
            raise UserError(
                "attention paths take vectors: the task must have vocab_size 0, got "
                f"{self.vocab_size}."
            )
        if self.causal:
            raise UserError(
                "attention paths need causal=False, got causal=True: they attend to all tokens."
            )
        if isinstance(self.heads, int):
            raise UserError(
                f"heads must have a number for each layer, such as (2, 2), got {self.heads}."
            )
        check_range("the number of layers (model.heads)", len(self.heads), 1, MAX_SIZES["layers"])
        for size in (*self.heads, *self.widths, self.query_width):
            check_range("each of heads, width and query_width", size, 1, MAX_SIZES["width"])
        layers = len(self.heads) + 1
        if len(self.widths) != layers:
            raise UserError(
                f"{len(self.heads)} attention layers have {layers} hidden widths N_1 .. "
                f"N_{layers}, got {len(self.widths)}; give a number for all, or {layers}."
            )

    @property
    def widths(self) -> tuple[int, ...]:
        """(N_1 .. N_{L+1})."""
        if isinstance(self.width, int):
            return (self.width,) * (len(self.heads) + 1)
        return tuple(self.width)


def path_products(readout_N: jax.Array, values: Sequence[jax.Array]) -> jax.Array:
    """Returns a^T V^(L)h_L .. V^(1)h_1 for every path, (P, N_1).

    Divided by sqrt(N_2 .. N_{L+1}) this is v^(1). U = v^(1) v^(1)T / N_1 is the order parameter of
    these weights.

    Args:
      readout_N: a, (N_{L+1},).
      values: V^(l) of each layer, (N_l, H_l, N_{l+1}).
    """
    v_PxO = readout_N[None]
    for value_IxHxO in reversed(values):
        v_PxO = jnp.einsum("iho,po->hpi", value_IxHxO, v_PxO).reshape(-1, len(value_IxHxO))
    return v_PxO


class AttentionPaths(Loadable):
    """The network f: tokens (B, T, n) to numbers (B,).

    A call computes f layer by layer; `from_attentioned` computes it as the sum over paths. If
    attention maps are given (the fixed heads of a task), there are no queries and keys.
    """

    spec: AttentionPathsSpec

    def setup(self):
        layers = range(len(self.spec.heads))
        self.embed = ScaledKernel(self.spec, self.spec.widths[:1], name="embed")
        self.blocks = [Block(self.spec, i, name=f"block_{i}") for i in layers]
        self.out = ScaledKernel(self.spec, (), name="readout")

    def __call__(self, tokens_BxTxn, positions=None, *, maps: Maps = None, kept: Maps = None):
        """Computes f layer by layer.

        Args:
          tokens_BxTxn: the tokens, real vectors of dimension n.
          positions: must be None; the model returns one number for each sequence.
          maps: Omega^(l) of each layer, (B, H_l, S, T); None computes them by queries and keys.
          kept: 0/1 arrays (H_l,) of the heads to keep; a layer's sum is scaled by #kept^(-1/2).
        """
        if positions is not None:
            raise UserError(
                "attention paths return one number for each sequence: positions must be None, got "
                f"the shape {jnp.shape(positions)}."
            )
        maps = self.maps(tokens_BxTxn) if maps is None else maps
        z_BxTxN = tap(self, "embedded", tokens_BxTxn @ self.embed(tokens_BxTxn.shape[-1]))
        for i, (block, map_BxHxSxT) in enumerate(zip(self.blocks, maps)):
            z_BxTxN = block.attn(z_BxTxN, map_BxHxSxT, None if kept is None else kept[i])
        return tap(self, "logits", (z_BxTxN @ self.out(z_BxTxN.shape[-1])).mean(-1))

    def input_width(self, params: Any = None) -> int:
        """Returns the token dimension n of these parameters, 2 without parameters."""
        return 2 if params is None else params["embed"]["kernel"].shape[0]

    def maps(self, tokens_BxTxn) -> list[jax.Array]:
        """Returns Omega^(l) of each layer, (B, H_l, S, T); the last at the readout's queries."""
        queries = [tokens_BxTxn] * (len(self.spec.heads) - 1)
        queries.append(readout_queries(tokens_BxTxn, self.spec.readout))
        return [block.attn.maps(tokens_BxTxn, q) for block, q in zip(self.blocks, queries)]

    def attentioned_input(self, tokens_BxTxn) -> jax.Array:
        """Returns xi, (B, P, n), which depends on queries and keys but not on values."""
        return attentioned_input(tokens_BxTxn, self.maps(tokens_BxTxn))

    def from_attentioned(self, xi_BxPxn) -> jax.Array:
        """Returns f, (B,), as the sum over paths, at a cost that does not depend on T."""
        _, v_eff_Pxn = self.path_weights(xi_BxPxn.shape[-1])
        return jnp.einsum("bpn,pn->b", xi_BxPxn, v_eff_Pxn) * v_eff_Pxn.size**-0.5

    def path_weights(self, n: int) -> tuple[jax.Array, jax.Array]:
        """Returns v^(1) / sqrt(N_1), (P, N_1), whose Gram matrix is U, and V_eff, (P, n)."""
        widths = self.spec.widths
        values = [block.attn.value(width) for block, width in zip(self.blocks, widths)]
        v_PxN = path_products(self.out(widths[-1]), values)
        # The kernel of `embed` includes the factor 1/sqrt(n), which V_eff does not have.
        return v_PxN, v_PxN @ self.embed(n).T * n**0.5


class Block(nn.Module):
    """A layer of attention without residual and MLP."""

    spec: AttentionPathsSpec
    layer: int

    def setup(self):
        self.attn = PathAttention(self.spec, self.layer, name="attn")


class PathAttention(nn.Module):
    """Attention with queries and keys from the network's input, and values from the layer below."""

    spec: AttentionPathsSpec
    layer: int

    def setup(self):
        spec, heads = self.spec, self.spec.heads[self.layer]
        self.query = ScaledKernel(spec, (heads, spec.query_width), name="query")
        self.key = ScaledKernel(spec, (heads, spec.query_width), name="key")
        self.value = ScaledKernel(spec, (heads, spec.widths[self.layer + 1]), name="value")

    def maps(self, tokens_BxSxn, queries_BxTxn):
        """Returns Omega_st, (B, H, S, T), a softmax over the keys s."""
        n = tokens_BxSxn.shape[-1]
        query_BxTxHxD = jnp.einsum("btn,nhd->bthd", queries_BxTxn, self.query(n))
        key_BxSxHxD = jnp.einsum("bsn,nhd->bshd", tokens_BxSxn, self.key(n))
        query_BxTxHxD = tap(self, "queries", query_BxTxHxD)
        key_BxSxHxD = tap(self, "keys", key_BxSxHxD)
        scores_BxHxTxS = tap(self, "scores", attention_scores(query_BxTxHxD, key_BxSxHxD))
        weights_BxHxTxS = tap(self, "weights", attention_weights(scores_BxHxTxS))
        return tap(self, "maps", weights_BxHxTxS.swapaxes(2, 3), plotted=True)

    def __call__(self, z_BxSxI, maps_BxHxSxT, kept_H=None):
        value_IxHxO = self.value(z_BxSxI.shape[-1])
        heads = self.spec.heads[self.layer]
        if kept_H is not None:
            heads = jnp.maximum(kept_H.sum(), 1)
            value_IxHxO = value_IxHxO * kept_H[None, :, None]
        mixed_BxTxHxI = jnp.einsum("bsi,bhst->bthi", z_BxSxI, maps_BxHxSxT)
        mixed_BxTxHxI = tap(self, "mixed", mixed_BxTxHxI)
        out_BxTxO = jnp.einsum("bthi,iho->bto", mixed_BxTxHxI, value_IxHxO) * heads**-0.5
        return tap(self, "output", out_BxTxO)


class ScaledKernel(nn.Module):
    """A parameter `kernel` of shape (inputs, *outputs); "prior" divides it by sqrt(inputs)."""

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
    """Returns the network with the fields of an `AttentionPathsSpec`."""
    return AttentionPaths(make_spec(AttentionPathsSpec, numbers))
