"""One network for all published families, with the addresses of `decoder`.

    h = E[x_t] + p_t                         token embedding; p_t only with learned positions
    h <- h + attention(N h) + MLP(N h)       parallel blocks
    h <- h + attention(N h),  h <- h + MLP(N h)                    other blocks
    logits = U N h                           N: LayerNorm or RMSNorm; U: unembedding

`PretrainedSpec` has the differences between families, such as the places of the norms.

Paths:

    {embed,positions,types}/embedding, embed_norm/{scale,bias}, embed_project/kernel
    block_i/{attn_norm,mlp_norm,attn_output_norm,mlp_output_norm}/{scale,bias}
    block_i/attn/{query,key,value,out}/{kernel,bias}
    block_i/attn/{query_norm,key_norm}/{scale,bias}, block_i/attn/sinks
    block_i/mlp/{gate,in,out}/{kernel,bias}, or for experts
    block_i/mlp/router/{kernel,bias}, block_i/mlp/expert_j/{gate,in,out}/{kernel,bias}
    final_norm/{scale,bias}, head/{kernel,bias}, head_norm/{scale,bias}, unembed_project/kernel
    unembed/{kernel,bias}

Kernels are (inputs, outputs); outputs of query, key and value are ordered by head.
`activation_points` lists the activations.
"""

import contextlib
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxformer.core.errors import UserError
from jaxformer.models import layers
from jaxformer.models.activation_points import is_observed, tap
from jaxformer.models.activations import activation
from jaxformer.models.fused_attention import fused_attention
from jaxformer.models.half_precision import product
from jaxformer.models.model import take_positions
from jaxformer.models.pretrained import positions, programs
from jaxformer.models.pretrained.mlps import MLP, Experts
from jaxformer.models.pretrained.network_layers import Bias, HeadNorms, capped, dense, norm
from jaxformer.models.pretrained.spec import PretrainedSpec
from jaxformer.models.source import Loadable
from jaxformer.models.vocabulary import check_tokens

# {"seen": (B, S) booleans, true at real tokens; "length": the number of used slots;
#  "block_i": {"keys": (B, S, G, D), "values": (B, S, G, D)}}
Cache = dict[str, Any]


class Pretrained(Loadable):
    """The network: tokens (B, T) to logits (B, T, V), or (B, K, V) at `positions_BxK` only.

    Encoders without a head for masked tokens return their last states, (B, T, N).
    """

    spec: PretrainedSpec

    @nn.compact
    def __call__(
        self,
        tokens_BxT: jax.Array,
        positions_BxK: jax.Array | None = None,
        real_BxT: jax.Array | None = None,
        cache: Cache | None = None,
        types_BxT: jax.Array | None = None,
    ) -> Any:
        """Returns the logits, or (logits, cache) if a cache is given.

        Args:
          tokens_BxT: the tokens.
          positions_BxK: the positions at which logits are returned; None for all.
          real_BxT: booleans, false at padding on the left or right. Nothing attends to padding, and
            it does not count as a position.
          cache: keys and values of earlier tokens, which these tokens continue. With
            mutable=["cache"] the module stores a cache of `spec.length` tokens by itself.
          types_BxT: the segment of each token, for models with segments; by default the first.
        """
        spec = self.spec
        n_batch, T = tokens_BxT.shape
        has_padding = real_BxT is not None
        real_BxT = jnp.ones((n_batch, T), bool) if real_BxT is None else real_BxT.astype(bool)
        stored = None
        if cache is None and self.is_mutable_collection("cache") and not self.is_initializing():
            stored = self.variable("cache", "held", lambda: self.empty_cache(n_batch, spec.length))
            cache = stored.value
        start = 0 if cache is None else cache["length"]
        n_before_B = jnp.zeros(n_batch, int) if cache is None else cache["seen"].sum(1)
        # The tokens that count as positions.
        counted_BxT = real_BxT if spec.pad < 0 else real_BxT & (tokens_BxT != spec.pad)
        position_BxT = jnp.maximum(jnp.cumsum(counted_BxT, 1) + n_before_B[:, None] - 1, 0)
        seen_BxS = real_BxT
        if cache is not None:
            seen_BxS = jax.lax.dynamic_update_slice(cache["seen"], real_BxT, (0, start))
        S = seen_BxS.shape[1]
        if spec.learned_positions and max(T, S) > spec.length:
            raise UserError(f"the model has {spec.length} positions, got {max(T, S)} tokens.")
        # In families with a padding token, padding gets the position before the first token's.
        table_row_BxT = jnp.where(counted_BxT, position_BxT, -1) if spec.pad >= 0 else position_BxT
        h_BxTxN = self._embedded(tokens_BxT, table_row_BxT, types_BxT)
        score_inputs = positions.SharedScoreInputs(
            spec, seen_BxS, start, position_BxT, has_padding or cache is not None
        )
        new_cache: Cache = {"seen": seen_BxS, "length": start + T}
        for i in range(spec.layers):
            cached = None if cache is None else (cache[f"block_{i}"], start)
            block = Block(spec, i, name=f"block_{i}")
            h_BxTxN, new_cache[f"block_{i}"] = block(h_BxTxN, score_inputs.of_block(i), cached)
        logits = self._read_out(take_positions(h_BxTxN, positions_BxK))
        if stored is not None:
            stored.value = new_cache
            return logits
        return logits if cache is None else (logits, new_cache)

    def _embedded(
        self, tokens_BxT: jax.Array, table_row_BxT: jax.Array, types_BxT: jax.Array | None
    ) -> jax.Array:
        """Returns the states that enter the first block.

        `table_row_BxT` plus `position_offset` is each token's row in the table of positions.
        """
        spec = self.spec
        h_BxTxN = self._embed("embed", spec.vocab_size, tokens_BxT, spec.embed_width)
        if spec.embed_scale != 1:
            h_BxTxN = h_BxTxN * jnp.asarray(spec.embed_scale, h_BxTxN.dtype)
        if spec.embed_width:
            h_BxTxN = dense(spec, spec.width, "embed_project", bias=False)(h_BxTxN)
        h_BxTxN = tap(self, "token_embeddings", h_BxTxN)
        if spec.types:
            types_BxT = jnp.zeros_like(tokens_BxT) if types_BxT is None else types_BxT
            h_BxTxN = h_BxTxN + self._embed("types", spec.types, types_BxT)
        if spec.learned_positions:
            n_rows = spec.length + spec.position_offset
            p_BxTxN = self._embed("positions", n_rows, table_row_BxT + spec.position_offset)
            h_BxTxN = h_BxTxN + tap(self, "position_embeddings", p_BxTxN)
        if spec.embed_norm:
            h_BxTxN = norm(spec, "embed_norm")(h_BxTxN)
        return tap(self, "embedded", h_BxTxN)

    def _embed(self, name: str, n_rows: int, index: jax.Array, width: int = 0) -> jax.Array:
        spec = self.spec
        table = layers.embedding(n_rows, width or spec.width, name, spec.init_std, **spec.dtypes)
        return table(index)

    def _read_out(self, h_BxKxN: jax.Array) -> jax.Array:
        """Returns the logits, or the normed states of a model without logits."""
        spec = self.spec
        if spec.final_norm:
            h_BxKxN = norm(spec, "final_norm")(h_BxKxN)
        h_BxKxN = tap(self, "final", h_BxKxN)
        if not spec.has_logits:
            return h_BxKxN
        if spec.head_act:
            h_BxKxN = dense(spec, spec.width, "head", bias=True)(h_BxKxN)
            h_BxKxN = norm(spec, "head_norm")(activation(spec.head_act, spec.width)(h_BxKxN))
        if spec.embed_width:
            h_BxKxN = dense(spec, spec.embed_width, "unembed_project", bias=False)(h_BxKxN)
        if spec.tied:
            table_VxN = jnp.asarray(self.variables["params"]["embed"]["embedding"])
            logits = product("bkn,vn->bkv", h_BxKxN, table_VxN)
            if spec.unembed_bias:
                logits = Bias(spec, name="unembed")(logits)
        else:
            logits = dense(spec, spec.vocab_size, "unembed", spec.unembed_bias)(h_BxKxN)
        return tap(self, "logits", capped(logits, spec.logit_cap))

    @nn.nowrap
    def apply(self, variables: Any, *args: Any, **kwargs: Any) -> Any:
        """Runs as `flax.linen.Module.apply`, on arrays by programs of one block each."""
        # A subclass of yours may read what changes between two runs.
        is_own = type(self) is Pretrained and not kwargs
        if is_own and programs.can_run(self, variables, args):
            check_tokens(self, args[0])  # inside jit a wrong token cannot be seen
            with contextlib.suppress(*programs.FAILURES):
                return programs.run(self, variables["params"], args)[0]
        return super().apply(variables, *args, **kwargs)

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
    """Attention and MLP with their residuals, in sequence or in parallel.

    A call returns the states and the block's new cache. `cached` is (the block's cache, the slot of
    the first new token), or None.
    """

    spec: PretrainedSpec
    index: int = 0

    @nn.compact
    def __call__(self, h_BxTxN, score_inputs: positions.ScoreInputs, cached):
        spec = self.spec
        attn = Attention(spec, self.index, name="attn")
        if spec.has_experts(self.index):
            mlp = Experts(spec, name="mlp")
        else:
            mlp = MLP(spec, spec.mlp_width, name="mlp")
        h_BxTxN = tap(self, "before", h_BxTxN)
        normed = self._norm("attn_norm", h_BxTxN, "input", "both")
        branch, cache = attn(normed, score_inputs, cached)
        if spec.parallel:
            normed = normed if spec.shared_norm else norm(spec, "mlp_norm")(h_BxTxN)
            h_BxTxN = h_BxTxN + branch + mlp(normed)
            return tap(self, "states", h_BxTxN), cache
        branch = self._norm("attn_output_norm", branch, "output", "both")
        between = tap(self, "between", self._norm("attn_norm", h_BxTxN + branch, "sum"))
        branch = mlp(self._norm("mlp_norm", between, "input", "both"))
        branch = self._norm("mlp_output_norm", branch, "output", "both")
        return tap(self, "states", self._norm("mlp_norm", between + branch, "sum")), cache

    def _norm(self, name: str, x_BxTxN: jax.Array, *places: str) -> jax.Array:
        """Applies a norm if the family has norms at one of these places (`spec.norm_at`)."""
        return norm(self.spec, name)(x_BxTxN) if self.spec.norm_at in places else x_BxTxN


class Attention(nn.Module):
    """Wo concat_h(A_h v_h); groups of queries share keys and values."""

    spec: PretrainedSpec
    index: int = 0

    @nn.compact
    def __call__(self, x_BxTxN, score_inputs: positions.ScoreInputs, cached):
        spec = self.spec
        q_BxTxHxD = self._heads(x_BxTxN, "query", spec.heads)
        k_BxTxGxD = self._heads(x_BxTxN, "key", spec.kv_heads)
        v_BxTxGxD = self._heads(x_BxTxN, "value", spec.kv_heads)
        mask_BxTxS, needs_mask, angles_BxTxk, bias = score_inputs
        rotary = spec.rotary_of(self.index)
        if rotary is not None:
            q_BxTxHxD = tap(self, "turned_queries", rotary.turn(q_BxTxHxD, angles_BxTxk))
            k_BxTxGxD = tap(self, "turned_keys", rotary.turn(k_BxTxGxD, angles_BxTxk))
        if cached is not None:
            cache, start = cached
            slot = (0, start, 0, 0)
            k_BxTxGxD = jax.lax.dynamic_update_slice(cache["keys"], k_BxTxGxD, slot)
            v_BxTxGxD = jax.lax.dynamic_update_slice(cache["values"], v_BxTxGxD, slot)
        cache = {"keys": k_BxTxGxD, "values": v_BxTxGxD}

        def adjust(scores_BxHxTxS):
            scores_BxHxTxS = capped(scores_BxHxTxS, spec.score_cap)
            return scores_BxHxTxS if bias is None else scores_BxHxTxS + bias

        scale, mask_Bx1xTxS = spec.score_scale_of(self.index), mask_BxTxS[:, None]
        is_plain_softmax = scale == spec.head_width**-0.5 and bias is None and not spec.score_cap
        sinks_H = None
        if spec.sinks:  # no kernel of `fused_attention` has them
            is_plain_softmax, init = False, nn.initializers.normal(spec.init_std)
            sinks_H = jnp.asarray(self.param("sinks", init, (spec.heads,), spec.param_dtype))
        if is_plain_softmax and not is_observed(self):
            mixed_BxTxHxD = fused_attention(
                q_BxTxHxD,
                k_BxTxGxD,
                v_BxTxGxD,
                mask_Bx1xTxS if needs_mask else None,
                causal=spec.causal and not needs_mask,
            )
        else:
            mixed_BxTxHxD = layers.softmax_attention(
                self,
                q_BxTxHxD,
                k_BxTxGxD,
                v_BxTxGxD,
                mask_Bx1xTxS,
                accumulate=jnp.result_type(float),
                scale=scale,
                adjust=adjust,
                sinks_H=sinks_H,
            )
        project = dense(spec, spec.width, "out", spec.out_bias)
        return layers.merge_heads(self, mixed_BxTxHxD, project), cache

    def _heads(self, x_BxTxN: jax.Array, name: str, n_heads: int) -> jax.Array:
        """Returns queries, keys or values by head; some families norm queries and keys."""
        spec = self.spec
        flat = dense(spec, n_heads * spec.head_width, name, spec.qkv_bias)(x_BxTxN)
        if spec.qk_norm == "width" and name != "value":
            flat = norm(spec, f"{name}_norm")(flat)
        if spec.clip:
            flat = jnp.clip(flat, -spec.clip, spec.clip)
        if spec.qk_norm in ("head", "each_head") and name != "value":
            split = flat.reshape(*flat.shape[:2], n_heads, spec.head_width)
            make_norm = norm if spec.qk_norm == "head" else HeadNorms
            flat = make_norm(spec, name=f"{name}_norm")(split).reshape(flat.shape)
        return layers.split_heads(self, name, flat, n_heads)


def pretrained(**numbers) -> Pretrained:
    """Returns the network with the fields of a `PretrainedSpec`."""
    return Pretrained(PretrainedSpec(**numbers))
