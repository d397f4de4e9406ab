"""One network for GPT-2, GPT-NeoX (Pythia), Llama and Phi-3, with the addresses of `decoder`.

    h_0 = E[x] + p_t                                      p only where positions are learned
    h <- h + Wo concat_h(A_h v_h) + MLP(N(h))             parallel: both read h
    h <- h + Wo concat_h(A_h v_h),  h <- h + MLP(N(h))    else
    logits = U N(h)

Paths: embed/embedding, positions/embedding, block_i/{attn_norm,mlp_norm}/{scale,bias},
block_i/attn/{query,key,value,out}/{kernel,bias}, block_i/mlp/{gate,in,out}/{kernel,bias},
final_norm/{scale,bias}, unembed/kernel. Kernels are (inputs, outputs); heads are slowest in the
outputs of query, key, value. Activations: those of `points`.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxformer.core.errors import UserError
from jaxformer.models import attention
from jaxformer.models.activation_points import point
from jaxformer.models.activations import activation
from jaxformer.models.layers import flat, normal
from jaxformer.models.model import take_positions
from jaxformer.models.pretrained.spec import PretrainedSpec

Cache = dict[str, Any]  # {"seen": (B, S) booleans, "length": number, "block_0": {"keys", "values"}}


class Pretrained(nn.Module):
    """tokens (B, T) -> logits (B, T, V), or the same numbers at `positions_BxK` only, (B, K, V).

    `real_BxT` is false at padding, left or right: it is seen by nobody and takes no place. With a
    `cache` the tokens continue what it holds, and the answer is (logits, cache). Called with
    mutable=["cache"] it keeps one of its own, for as many tokens as `spec.length`.
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
        own = None
        if cache is None and self.is_mutable_collection("cache") and not self.is_initializing():
            own = self.variable("cache", "held", lambda: self.empty_cache(n_batch, spec.length))
            cache = own.value
        start = 0 if cache is None else cache["length"]
        before_B = jnp.zeros(n_batch, int) if cache is None else cache["seen"].sum(1)
        places_BxT = jnp.maximum(jnp.cumsum(real_BxT, 1) + before_B[:, None] - 1, 0)
        seen_BxS = real_BxT
        if cache is not None:
            seen_BxS = jax.lax.dynamic_update_slice(cache["seen"], real_BxT, (0, start))
        S = seen_BxS.shape[1]
        if spec.learned_positions and max(T, S) > spec.length:
            raise UserError(f"the model has {spec.length} positions, got {max(T, S)} tokens.")
        h_BxTxN = point(self, "token_embeddings", self._embed("embed", spec.vocab_size, tokens_BxT))
        if spec.learned_positions:
            p_BxTxN = self._embed("positions", spec.length, places_BxT)
            h_BxTxN = h_BxTxN + point(self, "position_embeddings", p_BxTxN)
        h_BxTxN = point(self, "embedded", h_BxTxN)
        mask_BxTxS = visible(seen_BxS, start, T, spec.window)
        angles = None if spec.rotary is None else spec.rotary.angles(places_BxT)
        kept: Cache = {"seen": seen_BxS, "length": start + T}
        for i in range(spec.layers):
            held = None if cache is None else (cache[f"block_{i}"], start)
            block = Block(spec, name=f"block_{i}")
            h_BxTxN, kept[f"block_{i}"] = block(h_BxTxN, mask_BxTxS, angles, held)
        h_BxKxN = take_positions(h_BxTxN, positions_BxK)
        h_BxKxN = point(self, "final", Norm(spec, name="final_norm")(h_BxKxN))
        if spec.tied:
            table_VxN = self.variables["params"]["embed"]["embedding"]
            logits = h_BxKxN @ jnp.asarray(table_VxN, h_BxKxN.dtype).T
        else:
            logits = dense(spec, spec.vocab_size, "unembed", bias=False)(h_BxKxN)
        logits = point(self, "logits", logits)
        if own is not None:
            own.value = kept
            return logits
        return logits if cache is None else (logits, kept)

    def _embed(self, name: str, rows: int, index: jax.Array) -> jax.Array:
        spec = self.spec
        init = normal(spec.init_std)
        return nn.Embed(rows, spec.width, embedding_init=init, name=name, **spec.dtypes)(index)

    def empty_cache(self, batch: int, length: int) -> Cache:
        """For `length` tokens in all, before the first one."""
        spec = self.spec
        zeros = jnp.zeros((batch, length, spec.kv_heads, spec.head_width), spec.dtype)
        blocks = {f"block_{i}": {"keys": zeros, "values": zeros} for i in range(spec.layers)}
        return {
            "seen": jnp.zeros((batch, length), bool),
            "length": jnp.zeros((), jnp.int32),
            **blocks,
        }


class Block(nn.Module):
    """Attention and MLP around the stream, one after the other or side by side."""

    spec: PretrainedSpec

    @nn.compact
    def __call__(self, h_BxTxN, mask_BxTxS, angles_BxTxk, held):
        spec = self.spec
        h_BxTxN = point(self, "before", h_BxTxN)
        attn, mlp = Attention(spec, name="attn"), MLP(spec, name="mlp")
        read = Norm(spec, name="attn_norm")(h_BxTxN)
        branch, kept = attn(read, mask_BxTxS, angles_BxTxk, held)
        between = h_BxTxN + branch
        if spec.parallel:
            h_BxTxN = between + mlp(Norm(spec, name="mlp_norm")(h_BxTxN))
        else:
            between = point(self, "between", between)
            h_BxTxN = between + mlp(Norm(spec, name="mlp_norm")(between))
        return point(self, "states", h_BxTxN), kept


class Attention(nn.Module):
    """Wo concat_h(A_h v_h); queries in groups that share keys and values."""

    spec: PretrainedSpec

    @nn.compact
    def __call__(self, x_BxTxN, mask_BxTxS, angles_BxTxk, held):
        spec = self.spec

        def heads(name: str, plural: str, n_heads: int) -> jax.Array:
            flat = dense(spec, n_heads * spec.head_width, name, spec.qkv_bias)(x_BxTxN)
            return point(self, plural, flat.reshape(*flat.shape[:2], n_heads, spec.head_width))

        q_BxTxHxK = heads("query", "queries", spec.heads)
        k_BxTxGxK = heads("key", "keys", spec.kv_heads)
        v_BxTxGxK = heads("value", "values", spec.kv_heads)
        if angles_BxTxk is not None:
            q_BxTxHxK = point(self, "turned_queries", self._turned(q_BxTxHxK, angles_BxTxk))
            k_BxTxGxK = point(self, "turned_keys", self._turned(k_BxTxGxK, angles_BxTxk))
        if held is not None:
            cache, start = held
            at = (0, start, 0, 0)
            k_BxTxGxK = jax.lax.dynamic_update_slice(cache["keys"], k_BxTxGxK, at)
            v_BxTxGxK = jax.lax.dynamic_update_slice(cache["values"], v_BxTxGxK, at)
        kept = {"keys": k_BxTxGxK, "values": v_BxTxGxK}
        group = spec.heads // spec.kv_heads
        if group > 1:
            k_BxTxGxK, v_BxTxGxK = (jnp.repeat(x, group, axis=2) for x in kept.values())
        scores = attention.attention_scores(q_BxTxHxK, k_BxTxGxK, jnp.result_type(float))
        scores = point(self, "scores", scores)
        scores = point(self, "masked_scores", attention.masked(scores, mask_BxTxS[:, None]))
        weights_BxHxTxS = point(self, "weights", attention.attention_weights(scores))
        mixed = attention.mix(weights_BxHxTxS.astype(v_BxTxGxK.dtype), v_BxTxGxK)
        mixed_BxTxHxK = point(self, "heads", mixed)
        flat = mixed_BxTxHxK.reshape(*mixed_BxTxHxK.shape[:2], -1)
        return point(self, "output", dense(spec, spec.width, "out", spec.out_bias)(flat)), kept

    def _turned(self, x_BxTxHxK, angles_BxTxk):
        width = 2 * angles_BxTxk.shape[-1]
        assert self.spec.rotary is not None
        turned = attention.turned(x_BxTxHxK[..., :width], angles_BxTxk, self.spec.rotary.scale)
        return jnp.concatenate([turned, x_BxTxHxK[..., width:]], axis=-1)


class MLP(nn.Module):
    """W_out phi(W_in x), or W_out (phi(W_gate x) * W_in x)."""

    spec: PretrainedSpec

    @nn.compact
    def __call__(self, x_BxTxN: jax.Array) -> jax.Array:
        spec = self.spec
        phi = activation(spec.act, spec.width)
        hidden = dense(spec, spec.mlp_width, "in", spec.mlp_bias)(x_BxTxN)
        if spec.gated:
            gate = dense(spec, spec.mlp_width, "gate", spec.mlp_bias)(x_BxTxN)
            gate = point(self, "gates", phi(point(self, "preactivation", gate)))
            hidden = gate * point(self, "linear", hidden)
        else:
            hidden = phi(point(self, "preactivation", hidden))
        hidden = point(self, "hidden", hidden)
        return point(self, "output", dense(spec, spec.width, "out", spec.mlp_bias)(hidden))


class Norm(nn.Module):
    """(x - mean) / sqrt(var + eps) times a gain plus a bias, or RMSNorm; statistics in float32."""

    spec: PretrainedSpec

    @nn.compact
    def __call__(self, x_BxTxN: jax.Array) -> jax.Array:
        spec, N = self.spec, x_BxTxN.shape[-1]
        gain_N = self.param("scale", nn.initializers.ones, (N,), spec.param_dtype)
        x = x_BxTxN.astype(jnp.promote_types(x_BxTxN.dtype, jnp.result_type(float)))
        if spec.norm == "layer":
            x = x - x.mean(-1, keepdims=True)
        factor = jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + spec.eps)
        x = x * point(self, "factor", factor) * jnp.asarray(gain_N)[None, None]
        if spec.norm == "layer":
            bias_N = self.param("bias", nn.initializers.zeros, (N,), spec.param_dtype)
            x = x + jnp.asarray(bias_N)[None, None]
        return point(self, "output", x.astype(spec.dtype))


def dense(spec: PretrainedSpec, features: int, name: str, bias: bool) -> nn.Dense:
    inits = {"kernel_init": normal(spec.init_std), "dot_general": flat}
    return nn.Dense(features, bias, name=name, **inits, **spec.dtypes)


def visible(seen_BxS: jax.Array, start: Any, T: int, window: int) -> jax.Array:
    """(B, T, S): the token in slot start + t sees the real ones in slots up to its own.

    Everybody sees himself, so that a row of padding is a row of numbers, which nobody reads.
    """
    slot_T, slot_S = start + jnp.arange(T), jnp.arange(seen_BxS.shape[1])
    back_TxS = slot_T[:, None] - slot_S[None]
    mask_TxS = back_TxS >= 0
    if window:
        mask_TxS &= back_TxS < window
    return (mask_TxS[None] & seen_BxS[:, None]) | (back_TxS == 0)[None]


def pretrained(**numbers) -> Pretrained:
    """The network with the numbers of a `PretrainedSpec`."""
    return Pretrained(PretrainedSpec(**numbers))
