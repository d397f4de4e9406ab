"""The decoder of the MixiT papers: Llama's, with softmax attention or MixiT's fixed mixing.

    h_0 = E[x]                                              (+ learned positions for MixiT)
    h <- r h + b Wo concat_h(A_h v_h)                       v_h = Wv_h RMSNorm(h)
    h <- r h + b Wd(phi(Wg y) * (Wu y))                     y = RMSNorm(h), Wg, Wu: n -> 4n
    logits = Whead RMSNorm(h)

A_h is the softmax of q k^T / sqrt(n_h) with rotary positions, or the fixed I + W - rowmean(W);
both are causal unless causal=False. The default r = b = 1 is the paper's text; the authors' skip
and depth scalings are other numbers, and their code multiplies each linear map by sqrt(base / its
inputs) (`base_width`, `base_mlp_width`).

Paths: embed/embedding, positions/embedding, block_i/{attn_norm,mlp_norm}/scale,
block_i/attn/{query,key,value,out}/kernel, block_i/attn/mix, block_i/mlp/{gate,in,out}/kernel (the
paper's Wg, Wu, Wd), final_norm/scale, unembed/kernel; "bias" beside a block's kernels if use_bias.
Activations: all of `points`.

With mutable=["cache"] it takes the tokens that follow those of the call before (models/cache.py).

scan=True runs all blocks but the last as one body over parameters stacked inside the compiled
function: addresses, initial bits, captures and results stay. docs/laboratory.md has what it costs.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxformer.core.errors import UserError
from jaxformer.models import activation_points, attention
from jaxformer.models.activation_points import point
from jaxformer.models.activations import activation
from jaxformer.models.cache import count, is_caching, remember
from jaxformer.models.decoder_spec import KEEP, DecoderSpec
from jaxformer.models.layers import RMSNorm, normal
from jaxformer.models.model import take_positions
from jaxformer.models.scanned import scan_blocks


class Attention(nn.Module):
    """Wo concat_h(A_h v_h); only for the queries at `positions_BxK` if they are given."""

    spec: DecoderSpec

    @nn.compact
    def __call__(self, x_BxTxN, positions_BxK=None, seen_BxT=None) -> jax.Array:
        spec = self.spec
        v_BxTxHxD = self._heads("value", x_BxTxN, spec.init_std)
        if is_caching(self):
            weights_HxTxT, v_BxTxHxD = self._cached(x_BxTxN, v_BxTxHxD)
        elif spec.mixer == "mixit":
            weights_HxTxT = self._fixed_mixing(x_BxTxN.shape[1], positions_BxK, seen_BxT)
        elif spec.fused and not activation_points.looked_at(self):
            q, k, mask = self._queries_keys(x_BxTxN, positions_BxK, seen_BxT)
            whole = spec.causal and positions_BxK is None  # then a kernel needs no mask
            mask = None if whole or mask is None else jnp.expand_dims(mask, range(4 - mask.ndim))
            return self._output(attention.fused(q, k, v_BxTxHxD, mask, whole))
        else:
            weights_HxTxT = self._softmax(x_BxTxN, positions_BxK, seen_BxT)
        weights_HxTxT = point(self, "weights", weights_HxTxT, plotted=True)
        return self._output(attention.mix(weights_HxTxT.astype(v_BxTxHxD.dtype), v_BxTxHxD))

    def _output(self, mixed_BxKxHxD):
        spec, mixed_BxKxHxD = self.spec, point(self, "heads", mixed_BxKxHxD)
        mixed_BxKxN = mixed_BxKxHxD.reshape(*mixed_BxKxHxD.shape[:2], spec.width)
        return point(self, "output", spec.dense(mixed_BxKxN, spec.width, "out", spec.init_std))

    def _softmax(self, x_BxTxN, positions_BxK, seen_BxT):
        q, k, mask = self._queries_keys(x_BxTxN, positions_BxK, seen_BxT)
        scores_BxHxKxT = attention.attention_scores(q, k, accumulate=self.spec.param_dtype)
        scores_BxHxKxT = attention.masked(point(self, "scores", scores_BxHxKxT), mask)
        return attention.attention_weights(point(self, "masked_scores", scores_BxHxKxT))

    def _queries_keys(self, x_BxTxN, positions_BxK, seen_BxT):
        """Turned queries and keys, and which scores count."""
        spec = self.spec
        q = self._heads("query", x_BxTxN, spec.qk_init_std)
        k = self._heads("key", x_BxTxN, spec.qk_init_std)
        q = point(self, "turned_queries", attention.rotary(q))
        k = point(self, "turned_keys", attention.rotary(k))
        q, mask = take_positions(q, positions_BxK), None
        if spec.causal:
            mask = attention.causal_mask(x_BxTxN.shape[1])
            mask = mask if positions_BxK is None else mask[positions_BxK][:, None]
        elif seen_BxT is not None:
            mask = seen_BxT[:, None, None, :]
        return q, k, mask

    def _cached(self, x_BxTxN, v_BxTxHxD):
        """The rows of A_h of the new tokens, and the values of all tokens that there are room for.

        What is not there yet has weight 0: all is causal.
        """
        spec, T = self.spec, x_BxTxN.shape[1]
        start, v_BxSxHxD = remember(self, "values", v_BxTxHxD, spec.length)
        if spec.mixer == "mixit":
            mix_HxSxS = jnp.asarray(self.param("mix", self._draw_mixing))
            return jax.lax.dynamic_slice_in_dim(mix_HxSxS, start, T, 1), v_BxSxHxD
        q, k = (
            attention.rotary(self._heads(name, x_BxTxN, spec.qk_init_std), start=start)
            for name in ("query", "key")
        )
        _, k_BxSxHxD = remember(self, "keys", k, spec.length)
        mask_TxS = jnp.arange(spec.length)[None] <= start + jnp.arange(T)[:, None]
        scores = attention.attention_scores(q, k_BxSxHxD, accumulate=spec.param_dtype)
        return attention.attention_weights(scores, mask_TxS), v_BxSxHxD

    def _fixed_mixing(self, length, positions_BxK, seen_BxT):
        # As an array, since loaded parameters are NumPy's, which cannot be indexed while tracing.
        mix_HxTxT = jnp.asarray(self.param("mix", self._draw_mixing))[:, :length, :length]
        total = 1 if self.spec.mixing_identity else 0
        if seen_BxT is not None:
            mix_BxHxTxT = attention.mixing_of_seen(mix_HxTxT, seen_BxT, total)
            return jnp.swapaxes(
                take_positions(jnp.swapaxes(mix_BxHxTxT, 1, 2), positions_BxK), 1, 2
            )
        if not self.spec.causal:  # rows of fewer tokens are centred again: they sum to 1 (or 0)
            mix_HxTxT = mix_HxTxT - (mix_HxTxT.sum(-1, keepdims=True) - total) / length
        if positions_BxK is None:
            return mix_HxTxT
        return jnp.moveaxis(mix_HxTxT[:, positions_BxK], 0, 1)

    def _draw_mixing(self, key):
        spec = self.spec
        std_key, key = jax.random.split(key)
        std_H = attention.mixing_std(
            std_key, spec.mixing_scale, spec.heads, spec.length, spec.width
        )
        sizes = spec.heads, spec.length, std_H, spec.causal, spec.mixing_identity
        mix_HxTxT = attention.mixing_matrix(key, *sizes)
        if spec.sink_head:
            mix_HxTxT = mix_HxTxT.at[0].set(attention.sink(spec.length))
        return mix_HxTxT.astype(spec.param_dtype)

    def _heads(self, name, x_BxTxN, std):
        """Queries, keys or values of every head."""
        flat_BxTxN = self.spec.dense(x_BxTxN, self.spec.width, name, std)
        shape_BxTxHxD = (*flat_BxTxN.shape[:2], self.spec.heads, -1)
        plural = {"query": "queries", "key": "keys", "value": "values"}[name]
        return point(self, plural, flat_BxTxN.reshape(shape_BxTxHxD))


class GatedMLP(nn.Module):
    """Wd(phi(Wg y) * (Wu y)): SwiGLU for phi = silu."""

    spec: DecoderSpec

    @nn.compact
    def __call__(self, y_BxTxN: jax.Array) -> jax.Array:
        spec = self.spec
        phi = activation(spec.act, spec.width)
        gate_BxTxM = spec.dense(y_BxTxN, spec.mlp_width, "gate", spec.init_std)
        gate_BxTxM = point(self, "gates", phi(point(self, "preactivation", gate_BxTxM)))
        up_BxTxM = spec.dense(y_BxTxN, spec.mlp_width, "in", spec.init_std)
        hidden_BxTxM = point(self, "hidden", gate_BxTxM * point(self, "linear", up_BxTxM))
        down = spec.width, "out", spec.init_std, spec.base_mlp_width
        return point(self, "output", spec.dense(hidden_BxTxM, *down))


class Block(nn.Module):
    """h <- r h + b Attention(h); h <- r h + b MLP(h)."""

    spec: DecoderSpec

    @nn.compact
    def __call__(self, h_BxTxN, positions_BxK=None, seen_BxT=None) -> jax.Array:
        spec = self.spec
        r, b = spec.residual_scale, spec.branch
        h_BxTxN = point(self, "before", h_BxTxN)
        inside = self._norm("attn_norm", h_BxTxN)
        branch = Attention(spec, name="attn")(inside, positions_BxK, seen_BxT)
        h = point(self, "between", r * take_positions(h_BxTxN, positions_BxK) + b * branch)
        if spec.use_mlp:
            h = r * h + b * GatedMLP(spec, name="mlp")(self._norm("mlp_norm", h))
        return point(self, "states", h, plotted=True)

    def _norm(self, name, h):
        return RMSNorm(name=name, **self.spec.dtypes)(h) if self.spec.use_norm else h


class Decoder(nn.Module):
    """tokens (B, T) -> logits (B, T, V), or the same numbers at `positions_BxK` only, (B, K, V)."""

    spec: DecoderSpec

    @nn.compact
    def __call__(
        self, tokens_BxT: jax.Array, positions_BxK: jax.Array | None = None, head: bool = True
    ) -> jax.Array:
        spec, length = self.spec, tokens_BxT.shape[1]
        if length > spec.length:
            raise UserError(f"the model holds {spec.length} tokens, got {length}.")
        h = self._embed("embed", spec.vocab_size, tokens_BxT)
        h = point(self, "token_embeddings", h)
        if spec.learned_positions:
            start = count(self, length) if is_caching(self) else 0
            places = self._embed("positions", spec.length, start + jnp.arange(length)[None])
            h += point(self, "position_embeddings", places)
        h = point(self, "embedded", h)
        seen_BxT = None  # a causal token sees no padding, which comes last
        if spec.pad >= 0 and not spec.causal:
            seen_BxT = (tokens_BxT != spec.pad).at[:, 0].set(True)
        again, last = {"policy": KEEP[spec.remat_keep]}, spec.layers - 1
        block = nn.remat(Block, **again) if spec.remat else Block
        unrolled = self.is_initializing() or is_caching(self) or activation_points.edited()
        scanned = spec.scan and last > 0 and not unrolled
        if scanned:
            again = again if spec.remat else None
            h = scan_blocks(self, Block(spec, parent=None), last, h, None, seen_BxT, remat=again)
        for i in range(last if scanned else 0, spec.layers):
            # Only the last block may drop tokens: every other block's are sources of the next.
            mine = positions_BxK if i == last else None
            h = block(spec, name=f"block_{i}")(h, mine, seen_BxT)
        if spec.use_norm:
            h = RMSNorm(name="final_norm", **spec.dtypes)(h)
        h = point(self, "final", h, plotted=True)
        if spec.base_width:
            h = h * (spec.base_width / spec.width) ** 0.5
        if not head:  # what the head reads, for losses that do not hold all logits
            return h
        unembed = spec.linear(spec.vocab_size, "unembed", spec.init_std, bias=False)
        return point(self, "logits", unembed(h))

    def _embed(self, name, rows, index):
        init = normal(self.spec.embed_init_std)
        return nn.Embed(rows, self.spec.width, embedding_init=init, name=name, **self.spec.dtypes)(
            index
        )


def decoder(**numbers) -> Decoder:
    """The decoder with the numbers of a `DecoderSpec`."""
    return Decoder(DecoderSpec(**numbers))
