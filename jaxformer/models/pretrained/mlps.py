"""The MLP of a block, and a mixture of MLPs: experts of which each token uses a few.

    y = sum_e w_e MLP_e(x),    w = the largest k entries of softmax(W_router x), the others are 0

gpt-oss takes the softmax of the largest k scores only, which is the same as w / sum(w). Qwen2-MoE
adds sigmoid(W_shared_gate x) MLP_shared(x), an expert that every token uses. Each expert has the
addresses of an MLP of its own, block_3/mlp/expert_5/{gate,in,out}/kernel and
block_3/mlp/expert_5/{hidden,output}, so that one expert can be frozen, adapted, captured, cut and
patched. The router's activations are

    block_3/mlp/router_scores     W_router x, (batch, token, expert); -inf turns an expert off, and
                                  the token takes the next one
    block_3/mlp/router_weights    w, where a 0 leaves an expert out and the others stay as they are

No token is ever dropped. A plain pass groups the tokens by expert: their rows are sorted and padded
to blocks of one expert each, at most twice as many rows as tokens x k, and the kernels are stacked
inside the compiled program. A pass that captures or edits something computes every expert for
every token, so that `output` of an expert means the same at all tokens.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxformer.core.adapters import with_equal_shapes
from jaxformer.models import layers
from jaxformer.models.activation_points import is_observed, tap
from jaxformer.models.activations import activation
from jaxformer.models.pretrained.network_layers import dense
from jaxformer.models.pretrained.spec import PretrainedSpec


class MLP(nn.Module):
    """W_out phi(W_in x), or W_out (phi(W_gate x) * W_in x), whose factors may have a limit."""

    spec: PretrainedSpec
    hidden: int

    @nn.compact
    def __call__(self, x_BxTxN: jax.Array) -> jax.Array:
        spec = self.spec

        def linear(x: jax.Array, features: int, name: str) -> jax.Array:
            y, limit = dense(spec, features, name, spec.mlp_bias)(x), spec.gate_limit
            if not limit or name == "out":
                return y
            return jnp.minimum(y, limit) if name == "gate" else 1 + jnp.clip(y, -limit, limit)

        phi = activation(spec.act, spec.width)
        return layers.mlp(self, x_BxTxN, linear, self.hidden, phi, spec.gated)


class Experts(nn.Module):
    """A mixture of experts in place of an MLP; the module's docstring has the equation."""

    spec: PretrainedSpec

    @nn.compact
    def __call__(self, x_BxTxN: jax.Array) -> jax.Array:
        spec = self.spec
        scores_BxTxE = dense(spec, spec.experts, "router", spec.mlp_bias)(x_BxTxN)
        scores_BxTxE = tap(self, "router_scores", scores_BxTxE)
        # Weights are chosen and summed in float32: a rounded score would choose another expert.
        shares_BxTxE = jax.nn.softmax(scores_BxTxE.astype(jnp.result_type(float)))
        weights_BxTxK, chosen_BxTxK = jax.lax.top_k(shares_BxTxE, spec.experts_per_token)
        if spec.normalised_experts:
            weights_BxTxK = weights_BxTxK / weights_BxTxK.sum(-1, keepdims=True)
        weights_BxTxK = weights_BxTxK.astype(x_BxTxN.dtype)
        # Groups have up to twice the rows of the chosen experts, so few experts are all computed.
        all_are_as_quick = spec.experts <= 2 * spec.experts_per_token
        if self.is_initializing() or is_observed(self) or all_are_as_quick:
            one_hot = jax.nn.one_hot(chosen_BxTxK, spec.experts, dtype=x_BxTxN.dtype)
            weights_BxTxE = (weights_BxTxK[..., None] * one_hot).sum(-2)
            y_BxTxN = self._all_experts(x_BxTxN, tap(self, "router_weights", weights_BxTxE))
        else:
            y_BxTxN = self._chosen_experts(x_BxTxN, weights_BxTxK, chosen_BxTxK)
        if spec.shared_width:
            share_BxTx1 = jax.nn.sigmoid(dense(spec, 1, "shared_gate", bias=False)(x_BxTxN))
            shared = MLP(spec, spec.shared_width, name="shared")
            y_BxTxN = y_BxTxN + share_BxTx1 * shared(x_BxTxN)
        return tap(self, "output", y_BxTxN)

    def _all_experts(self, x_BxTxN: jax.Array, weights_BxTxE: jax.Array) -> jax.Array:
        spec, y_BxTxN = self.spec, jnp.zeros_like(x_BxTxN)
        for e in range(spec.experts):
            expert = MLP(spec, spec.expert_hidden, name=f"expert_{e}")
            y_BxTxN = y_BxTxN + weights_BxTxE[..., e : e + 1] * expert(x_BxTxN)
        return y_BxTxN

    def _chosen_experts(
        self, x_BxTxN: jax.Array, weights_BxTxK: jax.Array, chosen_BxTxK: jax.Array
    ) -> jax.Array:
        spec = self.spec
        params = self.variables["params"]
        experts = with_equal_shapes([params[f"expert_{e}"] for e in range(spec.experts)])
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *experts)
        expert = MLP(spec, spec.expert_hidden, parent=None)

        def one_block(params: Any, x_PxN: jax.Array) -> jax.Array:
            return expert.apply({"params": params}, x_PxN[None])[0]

        x_RxN = x_BxTxN.reshape(-1, x_BxTxN.shape[-1])
        chosen_RxK = chosen_BxTxK.reshape(len(x_RxN), -1)
        slot_RxK, expert_of_block, block = grouped_rows(chosen_RxK, spec.experts)
        n_blocks = len(expert_of_block)
        rows_SxN = jnp.zeros((n_blocks * block, x_RxN.shape[1]), x_RxN.dtype)
        rows_SxN = rows_SxN.at[slot_RxK].set(x_RxN[:, None])
        chosen_params = jax.tree.map(lambda leaf: leaf[expert_of_block], stacked)
        y_SxN = jax.vmap(one_block)(chosen_params, rows_SxN.reshape(n_blocks, block, -1))
        y_RxKxN = y_SxN.reshape(n_blocks * block, -1)[slot_RxK]
        weights_RxK = weights_BxTxK.reshape(chosen_RxK.shape)
        return (weights_RxK[..., None] * y_RxKxN).sum(1).reshape(x_BxTxN.shape)


def grouped_rows(chosen_RxK: jax.Array, experts: int) -> tuple[jax.Array, jax.Array, int]:
    """Places the rows of each expert in blocks of their own.

    Args:
        chosen_RxK: the experts of each row.
        experts: the number of experts.

    Returns:
        (the slot of each row and choice, (R, K); the expert of each block; rows of a block). The
        number of blocks suffices for every choice, so no row is dropped.
    """
    n = chosen_RxK.size
    block = -(-n // experts)
    n_blocks = n // block + experts  # each expert leaves at most one block unfilled
    flat = chosen_RxK.reshape(-1)
    counts_E = jnp.zeros(experts, int).at[flat].add(1)
    blocks_E = -(-counts_E // block)
    first_block_E = jnp.cumsum(blocks_E) - blocks_E
    order = jnp.argsort(flat, stable=True)
    first_row_E = jnp.cumsum(counts_E) - counts_E
    rank = jnp.zeros(n, int).at[order].set(jnp.arange(n)) - first_row_E[flat]
    slot = first_block_E[flat] * block + rank
    ends_E = jnp.cumsum(blocks_E)
    expert_of_block = jnp.searchsorted(ends_E, jnp.arange(n_blocks), side="right")
    return slot.reshape(chosen_RxK.shape), jnp.minimum(expert_of_block, experts - 1), block
