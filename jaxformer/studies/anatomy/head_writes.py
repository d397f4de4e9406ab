"""Names for heads by what they write: the token that they attend to, or its opposite.

    copy       of the tokens of a sequence, the one that the head attends to most gets the largest
               logit from it
    negative   it gets the smallest

The logit is the head's direct contribution: what it writes goes through the output kernel and the
unembedding, and nothing between them reads it. The scale of the final norm is constant, so that the
contributions of all heads add up. The prompts repeat a random sequence, and the second time counts.
`labels` says what a head attends to; both together make an induction head or a backup of one.

Shapes: B prompts, T tokens, S key positions, H heads, N width, K tokens that may be written.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.interp.blocks import STATES, Blocks, addresses
from jaxformer.interp.capture.running import intervene
from jaxformer.interp.components import ALL_POSITIONS, HEADS, MLP, component_names, replace_parts
from jaxformer.studies.anatomy.labels import MIN_SCORE, Labels, random_prompts, why_no_labels
from jaxformer.studies.anatomy.layer_facts import WEIGHTS, weights_by_prompt

COPY, NEGATIVE = "copy", "negative"
ROUNDING = 1e-4  # of the largest logit of a head
FINAL_FACTOR = "final_norm/factor"


def head_writes(model: Any, params: Any) -> Labels:
    """Returns {head: (COPY or NEGATIVE, the share of its tokens)} for heads that do either."""
    if why_no_labels(model):
        return {}
    prompts = random_prompts(model)
    blocks = Blocks(model, params)
    if HEADS not in addresses(blocks.models[0]):
        return {}
    tokens = jnp.asarray(prompts.repeated, jnp.int32)
    run = blocks.forward(tokens, [HEADS, MLP, WEIGHTS])
    reads_KxN = _unembedding(*blocks.of_block(-1), run.states[-1][0, -1], prompts.known)
    first = prompts.repeated.shape[1] // 2
    column_BxS = np.searchsorted(prompts.known, prompts.repeated[:, :first])
    heads_HxH = np.eye(model.spec.heads, dtype=bool)
    labels: Labels = {}
    for block, values in enumerate(run.values):
        old = {name: values[name] for name in (HEADS, MLP) if name in values}
        new = {name: jnp.zeros_like(value) for name, value in old.items()}
        without = replace_parts(
            *blocks.of_block(block),
            *(tokens, run.states[block], old, new),
            *(heads_HxH, np.zeros(len(heads_HxH), bool), ALL_POSITIONS, True),
        )
        written = run.states[block + 1][None] - without.reshape(-1, *run.states[block].shape)
        logits_HxBxTxK = np.asarray(written[:, :, first:] @ reads_KxN.T, np.float32)
        weights = weights_by_prompt(values[WEIGHTS], tokens.shape, model.spec)
        attended_BxHxT = np.asarray(weights)[:, :, first:].argmax(-1)
        names = component_names(block, len(heads_HxH))[2:]
        for name, logits_BxTxK, attended_BxT in zip(
            names, logits_HxBxTxK, attended_BxHxT.swapaxes(0, 1), strict=True
        ):
            token_BxT = np.take_along_axis(prompts.repeated, attended_BxT, 1)
            # Of the tokens of its own sequence, which the head can tell apart.
            own_BxTxS = np.take_along_axis(logits_BxTxK, column_BxS[:, None], -1)
            largest_BxT, smallest_BxT = (
                np.take_along_axis(prompts.repeated, index_BxT, 1)
                for index_BxT in (own_BxTxS.argmax(-1), own_BxTxS.argmin(-1))
            )
            # A head that writes nothing into the logits has no largest one.
            size = np.abs(own_BxTxS).max()
            is_told_BxT = np.ptp(own_BxTxS, axis=-1) > ROUNDING * size if size else token_BxT < 0
            shares = {
                COPY: (is_told_BxT & (largest_BxT == token_BxT)).mean(),
                NEGATIVE: (is_told_BxT & (smallest_BxT == token_BxT)).mean(),
            }
            label = max(shares, key=lambda kind: shares[kind])
            if shares[label] >= MIN_SCORE:
                labels[name] = label, float(shares[label])
    return labels


@partial(jax.jit, static_argnames=("model",))
def _unembedding(model: Any, params: Any, state_N: jax.Array, known_K: np.ndarray) -> jax.Array:
    """Returns the change of the logits of some tokens by each dimension of the last state, (K, N).

    A norm divides all of them by one number, so one state serves all positions.
    """
    edits: dict[str, Any] = {}
    if FINAL_FACTOR in addresses(model):
        edits[FINAL_FACTOR] = jax.lax.stop_gradient

    def logits_K(state_N: jax.Array) -> jax.Array:
        tokens = jnp.zeros((1, 1), jnp.int32)
        state = {STATES: state_N[None, None]}
        return intervene(model, params, tokens, state | edits)[0, 0, known_K]

    return jax.jacrev(logits_K)(state_N)
