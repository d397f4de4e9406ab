"""One network for GPT-2, GPT-NeoX (Pythia), Llama and Phi-3, with the addresses of `decoder`.

    h_0 = E[x] + p_t                                      p_t only with learned positions
    h <- h + Wo concat_h(A_h v_h) + MLP(N(h))             parallel
    h <- h + Wo concat_h(A_h v_h),  h <- h + MLP(N(h))    otherwise
    logits = U N(h)

Paths: embed/embedding, positions/embedding, block_i/{attn_norm,mlp_norm}/{scale,bias},
block_i/attn/{query,key,value,out}/{kernel,bias}, block_i/mlp/{gate,in,out}/{kernel,bias},
final_norm/{scale,bias}, unembed/kernel. Kernels are (inputs, outputs); outputs of query, key and
value are ordered by head. Activations: those of `activation_points`.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxformer.core.errors import UserError
from jaxformer.models import attention, layers
from jaxformer.models.activation_points import tap
from jaxformer.models.activations import activation
from jaxformer.models.model import take_positions
from jaxformer.models.pretrained.spec import PretrainedSpec

Cache = dict[str, Any]  # {"seen": (B, S) booleans, "length": number, "block_0": {"keys", "values"}}


class Pretrained(nn.Module):
    """The network: tokens (B, T) to logits (B, T, V), or (B, K, V) at `positions_BxK` only.

    Args:
      real_BxT: booleans, false at padding on the left or right. Nothing attends to padding, and it
        does not count as a position.
      cache: keys and values of earlier tokens, which these tokens continue. The output is then
        (logits, cache). With mutable=["cache"] the module stores a cache of `spec.length` tokens.
    """

    spec: PretrainedSpec

    @nn.compact
    def __call__(
        self,
        tokens_BxT: jax.Array,
        positions_BxK: jax.Array | None = None,
        real_BxT: jax.Array | None = None,
        cache: Cache | None = None,
    ) -> Any:
        spec, (n_batch, T) = self.spec, tokens_BxT.shape
        real_BxT = jnp.ones((n_batch, T), bool) if real_BxT is None else real_BxT.astype(bool)
        stored = None
        if cache is None and self.is_mutable_collection("cache") and not self.is_initializing():
            stored = self.variable("cache", "held", lambda: self.empty_cache(n_batch, spec.length))
            cache = stored.value
        start = 0 if cache is None else cache["length"]
        before_B = jnp.zeros(n_batch, int) if cache is None else cache["seen"].sum(1)
        position_BxT = jnp.maximum(jnp.cumsum(real_BxT, 1) + before_B[:, None] - 1, 0)
        seen_BxS = real_BxT
        if cache is not None:
            seen_BxS = jax.lax.dynamic_update_slice(cache["seen"], real_BxT, (0, start))
        S = seen_BxS.shape[1]
        if spec.learned_positions and max(T, S) > spec.length:
            raise UserError(f"the model has {spec.length} positions, got {max(T, S)} tokens.")
        h_BxTxN = tap(self, "token_embeddings", self._embed("embed", spec.vocab_size, tokens_BxT))
        if spec.learned_positions:
            p_BxTxN = self._embed("positions", spec.length, position_BxT)
            h_BxTxN = h_BxTxN + tap(self, "position_embeddings", p_BxTxN)
        h_BxTxN = tap(self, "embedded", h_BxTxN)
        mask_BxTxS = visible(seen_BxS, start, T, spec.window)
        angles = None if spec.rotary is None else spec.rotary.angles(position_BxT)
        new_cache: Cache = {"seen": seen_BxS, "length": start + T}
        for i in range(spec.layers):
            cached = None if cache is None else (cache[f"block_{i}"], start)
            block = Block(spec, name=f"block_{i}")
            h_BxTxN, new_cache[f"block_{i}"] = block(h_BxTxN, mask_BxTxS, angles, cached)
        h_BxKxN = take_positions(h_BxTxN, positions_BxK)
        h_BxKxN = tap(self, "final", Norm(spec, name="final_norm")(h_BxKxN))
        if spec.tied:
            table_VxN = self.variables["params"]["embed"]["embedding"]
            logits = h_BxKxN @ jnp.asarray(table_VxN, h_BxKxN.dtype).T
        else:
            logits = dense(spec, spec.vocab_size, "unembed", bias=False)(h_BxKxN)
        logits = tap(self, "logits", logits)
        if stored is not None:
            stored.value = new_cache
            return logits
        return logits if cache is None else (logits, new_cache)

    def _embed(self, name: str, rows: int, index: jax.Array) -> jax.Array:
        spec = self.spec
        return layers.embedding(rows, spec.width, name, spec.init_std, **spec.dtypes)(index)

    def empty_cache(self, batch: int, length: int) -> Cache:
        """Returns an empty cache with room for `length` tokens."""
        spec = self.spec
        zeros = jnp.zeros((batch, length, spec.kv_heads, spec.head_width), spec.dtype)
        blocks = {f"block_{i}": {"keys": zeros, "values": zeros} for i in range(spec.layers)}
        return {
            "seen": jnp.zeros((batch, length), bool),
            "length": jnp.zeros((), jnp.int32),
            **blocks,
        }


class Block(nn.Module):
    """Attention and MLP with their residuals, in sequence or in parallel."""

    spec: PretrainedSpec

    @nn.compact
    def __call__(self, h_BxTxN, mask_BxTxS, angles_BxTxk, cached):
        spec = self.spec
        h_BxTxN = tap(self, "before", h_BxTxN)
        attn, mlp = Attention(spec, name="attn"), MLP(spec, name="mlp")
        normed = Norm(spec, name="attn_norm")(h_BxTxN)
        branch, cache = attn(normed, mask_BxTxS, angles_BxTxk, cached)
        between = h_BxTxN + branch
        if spec.parallel:
            h_BxTxN = between + mlp(Norm(spec, name="mlp_norm")(h_BxTxN))
        else:
            between = tap(self, "between", between)
            h_BxTxN = between + mlp(Norm(spec, name="mlp_norm")(between))
        return tap(self, "states", h_BxTxN), cache


class Attention(nn.Module):
    """Wo concat_h(A_h v_h); groups of queries share keys and values."""

    spec: PretrainedSpec

    @nn.compact
    def __call__(self, x_BxTxN, mask_BxTxS, angles_BxTxk, cached):
        spec = self.spec

        def heads(name: str, n_heads: int) -> jax.Array:
            flat = dense(spec, n_heads * spec.head_width, name, spec.qkv_bias)(x_BxTxN)
            return layers.split_heads(self, name, flat, n_heads)

        q_BxTxHxD = heads("query", spec.heads)
        k_BxTxGxD = heads("key", spec.kv_heads)
        v_BxTxGxD = heads("value", spec.kv_heads)
        if spec.rotary is not None:
            q_BxTxHxD, k_BxTxGxD = (
                tap(self, name, attention.rotate(x, angles_BxTxk, spec.rotary.scale))
                for name, x in (("turned_queries", q_BxTxHxD), ("turned_keys", k_BxTxGxD))
            )
        if cached is not None:
            cache, start = cached
            at = (0, start, 0, 0)
            k_BxTxGxD = jax.lax.dynamic_update_slice(cache["keys"], k_BxTxGxD, at)
            v_BxTxGxD = jax.lax.dynamic_update_slice(cache["values"], v_BxTxGxD, at)
        cache = {"keys": k_BxTxGxD, "values": v_BxTxGxD}
        mask_Bx1xTxS, scores_dtype = mask_BxTxS[:, None], jnp.result_type(float)
        mixed_BxTxHxD = layers.softmax_attention(
            self, q_BxTxHxD, k_BxTxGxD, v_BxTxGxD, mask_Bx1xTxS, scores_dtype
        )
        project = dense(spec, spec.width, "out", spec.out_bias)
        return layers.merge_heads(self, mixed_BxTxHxD, project), cache


class MLP(nn.Module):
    """W_out phi(W_in x), or W_out (phi(W_gate x) * W_in x)."""

    spec: PretrainedSpec

    @nn.compact
    def __call__(self, x_BxTxN: jax.Array) -> jax.Array:
        spec = self.spec

        def linear(x: jax.Array, features: int, name: str) -> jax.Array:
            return dense(spec, features, name, spec.mlp_bias)(x)

        phi = activation(spec.act, spec.width)
        return layers.mlp(self, x_BxTxN, linear, spec.mlp_width, phi, spec.gated)


class Norm(nn.Module):
    """LayerNorm or RMSNorm with a learned gain; statistics in float32."""

    spec: PretrainedSpec

    @nn.compact
    def __call__(self, x_BxTxN: jax.Array) -> jax.Array:
        spec, N = self.spec, x_BxTxN.shape[-1]
        gain_N = self.param("scale", nn.initializers.ones, (N,), spec.param_dtype)
        x = x_BxTxN.astype(jnp.promote_types(x_BxTxN.dtype, jnp.result_type(float)))
        if spec.norm == "layer":
            x = x - x.mean(-1, keepdims=True)
        factor = jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + spec.eps)
        x = x * tap(self, "factor", factor) * jnp.asarray(gain_N)[None, None]
        if spec.norm == "layer":
            bias_N = self.param("bias", nn.initializers.zeros, (N,), spec.param_dtype)
            x = x + jnp.asarray(bias_N)[None, None]
        return tap(self, "output", x.astype(spec.dtype))


def dense(spec: PretrainedSpec, features: int, name: str, bias: bool) -> nn.Dense:
    """Returns a linear map with the initial deviation and dtypes of a spec."""
    return layers.dense(features, name, spec.init_std, bias, **spec.dtypes)


def visible(seen_BxS: jax.Array, start: Any, T: int, window: int) -> jax.Array:
    """Returns the attention mask, (B, T, S).

    The token in slot start + t attends to real tokens in slots up to its own, `window` at most.
    Each token attends to itself, so that rows of padding have finite weights.

    Args:
      seen_BxS: booleans, true at slots with a real token.
      window: the number of slots that a token attends to; 0 is no limit.
    """
    slot_T, slot_S = start + jnp.arange(T), jnp.arange(seen_BxS.shape[1])
    back_TxS = slot_T[:, None] - slot_S[None]
    mask_TxS = back_TxS >= 0
    if window:
        mask_TxS &= back_TxS < window
    return (mask_TxS[None] & seen_BxS[:, None]) | (back_TxS == 0)[None]


def pretrained(**numbers) -> Pretrained:
    """Returns the network with the fields of a `PretrainedSpec`."""
    return Pretrained(PretrainedSpec(**numbers))
