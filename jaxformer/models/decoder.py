"""The decoder of the MixiT papers: a Llama with softmax attention or MixiT's fixed mixing.

    h_0 = E[x]                                              (+ learned positions)
    h <- r h + b Wo concat_h(A_h v_h)                       v_h = Wv_h RMSNorm(h)
    h <- r h + b Wd(phi(Wg y) * (Wu y))                     y = RMSNorm(h), Wg, Wu: n -> 4n
    logits = Whead RMSNorm(h)

A_h is the softmax of q k^T / sqrt(D) (with `score_scale`, of score_scale q k^T) with rotary
positions, unless positions="none", or the fixed I + W - rowmean(W). Both are causal unless
causal=False. The default r = b = 1 follows the paper's text. The authors' code has other skip and
depth scalings, and multiplies each linear map by sqrt(base / its inputs) (`base_width`,
`base_mlp_width`). The logits are multiplied by `logit_scale`. gated=False has Wd phi(Wu y) as its
MLP, `head_width` sets the width of a head apart from n / H, and `outputs` numbers take the place of
the V logits.

Paths: embed/embedding, positions/embedding, block_i/{attn_norm,mlp_norm}/scale,
block_i/attn/{query,key,value,out}/kernel, block_i/attn/mix, block_i/mlp/{gate,in,out}/kernel (the
paper's Wg, Wu, Wd), final_norm/scale, unembed/kernel. use_bias adds a "bias" to a block's kernels.
`activation_points` lists the activations.

With mutable=["cache"] the tokens continue the tokens of the previous call (models/cache.py).

scan=True compiles one body for all blocks but the last (`scanned`), so that deep networks compile
faster. Addresses, captures and results do not change.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxformer.core.errors import UserError
from jaxformer.models import activation_points, attention, layers
from jaxformer.models.activation_points import tap
from jaxformer.models.activations import activation
from jaxformer.models.cache import advance, append, is_caching
from jaxformer.models.decoder_spec import REMAT_POLICIES, DecoderSpec
from jaxformer.models.fused_attention import fused_attention, within_documents
from jaxformer.models.half_precision import add_to_all
from jaxformer.models.layers import Norm
from jaxformer.models.model import make_spec, take_positions
from jaxformer.models.scanned import scan_blocks
from jaxformer.models.source import Loadable


class Attention(nn.Module):
    """The attention branch Wo concat_h(A_h v_h).

    Given `positions_BxK`, it computes the output of these tokens only. `real_BxT` is false at
    padding; None stands for no padding. Tokens of different numbers in `document_BxT` do not see
    each other; a cache has the numbers of all its slots.
    """

    spec: DecoderSpec

    @nn.compact
    def __call__(self, x_BxTxN, positions_BxK=None, real_BxT=None, document_BxT=None) -> jax.Array:
        spec = self.spec
        v_BxTxHxD = self._heads("value", x_BxTxN, spec.init_std)
        if is_caching(self):
            weights, v_BxSxHxD = self._weights_and_cached_values(x_BxTxN, v_BxTxHxD, document_BxT)
            mixed_BxTxHxD = layers.mix_values(self, weights, v_BxSxHxD)
        elif spec.mixer == "mixit":
            weights_HxTxT = self._fixed_mixing(x_BxTxN.shape[1], positions_BxK, real_BxT)
            mixed_BxTxHxD = layers.mix_values(self, weights_HxTxT, v_BxTxHxD)
        else:
            q, k, mask = self._queries_keys(x_BxTxN, positions_BxK, real_BxT)
            documents = None
            if document_BxT is not None:
                documents = (take_positions(document_BxT, positions_BxK), document_BxT)
            if spec.fused and not activation_points.is_observed(self):
                causal = spec.causal and positions_BxK is None
                if causal:  # the kernel hides later keys without a mask
                    mask = None
                elif mask is not None:
                    mask = jnp.expand_dims(mask, range(4 - mask.ndim))
                mixed_BxTxHxD = fused_attention(q, k, v_BxTxHxD, mask, causal, documents)
            else:
                mask = within_documents(mask, documents)
                mixed_BxTxHxD = layers.softmax_attention(self, q, k, v_BxTxHxD, mask)

        def project(x_BxTxN):
            return spec.dense(x_BxTxN, spec.width, "out", spec.init_std)

        return layers.merge_heads(self, mixed_BxTxHxD, project)

    def _queries_keys(self, x_BxTxN, positions_BxK, real_BxT):
        """Returns rotated queries and keys, and the mask of their scores."""
        spec = self.spec
        q = self._heads("query", x_BxTxN, spec.qk_init_std)
        k = self._heads("key", x_BxTxN, spec.qk_init_std)
        if spec.is_rotary:
            q = tap(self, "turned_queries", attention.rotary(q))
            k = tap(self, "turned_keys", attention.rotary(k))
        q = take_positions(spec.scaled(q), positions_BxK)
        mask = None
        if spec.causal:
            mask = attention.causal_mask(x_BxTxN.shape[1])
            mask = mask if positions_BxK is None else mask[positions_BxK][:, None]
        elif real_BxT is not None:
            mask = real_BxT[:, None, None, :]
        return q, k, mask

    def _weights_and_cached_values(self, x_BxTxN, v_BxTxHxD, document_BxS):
        """Returns the new tokens' rows of A_h, and the values of all `length` cache slots.

        Slots after a token have weight 0, since the decoder is causal.
        """
        spec, T = self.spec, x_BxTxN.shape[1]
        start, v_BxSxHxD = append(self, "values", v_BxTxHxD, spec.length)
        if spec.mixer == "mixit":
            mix_HxSxS = jnp.asarray(self.param("mix", self._draw_mixing))
            return jax.lax.dynamic_slice_in_dim(mix_HxSxS, start, T, 1), v_BxSxHxD
        q, k = (self._heads(name, x_BxTxN, spec.qk_init_std) for name in ("query", "key"))
        if spec.is_rotary:
            q, k = (attention.rotary(x, start=start) for x in (q, k))
        _, k_BxSxHxD = append(self, "keys", k, spec.length)
        mask = jnp.arange(spec.length)[None] <= start + jnp.arange(T)[:, None]
        if document_BxS is not None:
            document_BxT = jax.lax.dynamic_slice_in_dim(document_BxS, start, T, 1)
            mask = within_documents(mask, (document_BxT, document_BxS))
        scores = attention.attention_scores(spec.scaled(q), k_BxSxHxD)
        return attention.attention_weights(scores, mask), v_BxSxHxD

    def _fixed_mixing(self, length, positions_BxK, real_BxT):
        # Loaded parameters are NumPy arrays, which a tracer cannot index.
        mix_HxTxT = jnp.asarray(self.param("mix", self._draw_mixing))[:, :length, :length]
        totals_HxTx1 = self._mixing_totals(length).astype(mix_HxTxT.dtype)
        if real_BxT is not None:
            mix_BxHxTxT = attention.mixing_without_padding(mix_HxTxT, real_BxT, totals_HxTx1)
            mix_BxKxHxT = take_positions(jnp.swapaxes(mix_BxHxTxT, 1, 2), positions_BxK)
            return jnp.swapaxes(mix_BxKxHxT, 1, 2)
        if not self.spec.causal:  # shorter rows are centred again
            mix_HxTxT = mix_HxTxT - (mix_HxTxT.sum(-1, keepdims=True) - totals_HxTx1) / length
        if positions_BxK is None:
            return mix_HxTxT
        return jnp.moveaxis(mix_HxTxT[:, positions_BxK], 0, 1)

    def _mixing_totals(self, length: int) -> jax.Array:
        """Returns the sum of each row of the fixed mixing of `length` tokens, (H, T, 1)."""
        spec = self.spec
        totals_HxTx1 = jnp.full((spec.heads, length, 1), float(spec.mixing_identity))
        if spec.sink_head:
            sums_Tx1 = attention.sink_mixing(length).sum(-1, keepdims=True)
            totals_HxTx1 = totals_HxTx1.at[0].set(sums_Tx1)
        return totals_HxTx1

    def _draw_mixing(self, key):
        spec = self.spec
        std_key, key = jax.random.split(key)
        std_H = attention.mixing_std(
            std_key, spec.mixing_scale, spec.heads, spec.length, spec.width
        )
        mix_HxTxT = attention.mixing_matrix(
            key, spec.heads, spec.length, std_H, spec.causal, spec.mixing_identity
        )
        if spec.sink_head:
            mix_HxTxT = mix_HxTxT.at[0].set(attention.sink_mixing(spec.length))
        return mix_HxTxT.astype(spec.param_dtype)

    def _heads(self, name, x_BxTxN, std):
        """Returns the queries, keys or values of every head."""
        spec = self.spec
        flat_BxTxHD = spec.dense(x_BxTxN, spec.heads * spec.head_dim, name, std)
        return layers.split_heads(self, name, flat_BxTxHD, spec.heads)


class GatedMLP(nn.Module):
    """Wd(phi(Wg y) * (Wu y)), which is SwiGLU for phi = silu; without a gate, Wd phi(Wu y)."""

    spec: DecoderSpec

    @nn.compact
    def __call__(self, y_BxTxN: jax.Array) -> jax.Array:
        spec = self.spec

        def dense(x: jax.Array, features: int, name: str) -> jax.Array:
            base = spec.base_mlp_width if name == "out" else spec.base_width
            return spec.dense(x, features, name, spec.init_std, base)

        phi = activation(spec.act, spec.width)
        return layers.mlp(self, y_BxTxN, dense, spec.mlp_width, phi, spec.gated)


class Block(nn.Module):
    """h <- r h + b Attention(h); h <- r h + b MLP(h)."""

    spec: DecoderSpec

    @nn.compact
    def __call__(self, h_BxTxN, positions_BxK=None, real_BxT=None, document_BxT=None) -> jax.Array:
        spec = self.spec
        r, b = spec.residual_scale, spec.branch
        h_BxTxN = tap(self, "before", h_BxTxN)
        normed = self._norm("attn_norm", h_BxTxN)
        branch = Attention(spec, name="attn")(normed, positions_BxK, real_BxT, document_BxT)
        h = tap(self, "between", r * take_positions(h_BxTxN, positions_BxK) + b * branch)
        if spec.use_mlp:
            h = r * h + b * GatedMLP(spec, name="mlp")(self._norm("mlp_norm", h))
        return tap(self, "states", h, plotted=True)

    def _norm(self, name, h):
        return Norm(name=name, **self.spec.dtypes)(h) if self.spec.use_norm else h


class Decoder(Loadable):
    """The network: tokens (B, T) to logits (B, T, V), or (B, K, V) at `positions_BxK` only.

    With head=False it returns the states before the unembedding, for losses that compute the logits
    in parts.
    """

    spec: DecoderSpec

    @nn.compact
    def __call__(
        self, tokens_BxT: jax.Array, positions_BxK: jax.Array | None = None, head: bool = True
    ) -> jax.Array:
        spec, length = self.spec, tokens_BxT.shape[1]
        if length > spec.length:
            raise UserError(f"the model takes at most {spec.length} tokens, got {length}.")
        h = self._embed("embed", spec.vocab_size, tokens_BxT, spec.dtypes)
        h = tap(self, "token_embeddings", h)
        if spec.learned_positions:
            start = advance(self, length) if is_caching(self) else 0
            index_1xT = start + jnp.arange(length)[None]
            unrounded = spec.dtypes | {"dtype": spec.param_dtype}
            p_1xTxN = self._embed("positions", spec.length, index_1xT, unrounded)
            h = add_to_all(h, tap(self, "position_embeddings", p_1xTxN))
        h = tap(self, "embedded", h)
        real_BxT = None  # a causal token never attends to padding, which comes last
        if spec.pad >= 0 and not spec.causal:
            real_BxT = (tokens_BxT != spec.pad).at[:, 0].set(True)
        hidden = (real_BxT, self._documents(tokens_BxT))
        last = spec.layers - 1
        remat = {"policy": REMAT_POLICIES[spec.remat_keep]}
        block = nn.remat(Block, **remat) if spec.remat else Block
        # Initialisation, caches and edits need a separate module for each block.
        unrolled = self.is_initializing() or is_caching(self) or activation_points.has_edits()
        scanned = spec.scan and last > 0 and not unrolled
        if scanned:
            remat = remat if spec.remat else None
            h = scan_blocks(self, Block(spec, parent=None), last, h, None, *hidden, remat=remat)
        for i in range(last if scanned else 0, spec.layers):
            # Only the last block may drop tokens: earlier blocks return all tokens to the next.
            positions = positions_BxK if i == last else None
            h = block(spec, name=f"block_{i}")(h, positions, *hidden)
        if spec.use_norm:
            h = Norm(name="final_norm", **spec.dtypes)(h)
        h = tap(self, "final", h, plotted=True)
        if spec.base_width:
            h = h * (spec.base_width / spec.width) ** 0.5
        if spec.logit_scale != 1:
            h = h * spec.logit_scale
        if not head:
            return h
        n_outputs = spec.outputs or spec.vocab_size
        unembed = spec.linear(n_outputs, "unembed", spec.init_std, bias=False)
        return tap(self, "logits", unembed(h))

    def _documents(self, tokens_BxT):
        """The numbers of the documents of a window, or of all slots of a cache; or None."""
        if self.spec.document_end < 0:
            return None
        is_end = (tokens_BxT == self.spec.document_end).astype(jnp.int32)
        if is_caching(self):
            _, is_end = append(self, "ends", is_end, self.spec.length)
        return jnp.cumsum(is_end, 1) - is_end  # the end token is the last one of its document

    def _embed(self, name, n_rows, index, dtypes):
        spec = self.spec
        table = layers.embedding(n_rows, spec.width, name, spec.embed_init_std, **dtypes)
        return table(index)


def decoder(**numbers) -> Decoder:
    """Returns the decoder with the fields of a `DecoderSpec`."""
    return Decoder(make_spec(DecoderSpec, numbers))
