"""First-order effects of components, by gradients that pass through one block after another.

    attribution   (clean - corrupted) . d score / d component, at the corrupted prompts
    direct        component . d margin / d component, at the clean prompts, along the component's
                  direct path to the logits: later components and the scales of norms are constant

A `components.Measured` provides the prompts. Both functions return (L, C, B) by block, component
and pair. The components are those of `measured.names`; the entry of an attention is the sum over
its heads.

Shapes: B pairs, T tokens, N width, H heads, D head width, L blocks, C components of a block.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.interp.answers import margin, score
from jaxformer.interp.blocks import STATES, addresses, block_output
from jaxformer.interp.capture.running import intervene
from jaxformer.interp.components import ATTENTION, HEADS, MLP, Measured
from jaxformer.models.encoder import Encoder
from jaxformer.models.model import take_positions

NORM_FACTOR = ".*norm/factor"


def attribution(measured: Measured) -> np.ndarray:
    """Returns (clean - corrupted) . d score / d component at the corrupted prompts, (L, C, B).

    It is what `Measured.patching` adds to the score, to first order.
    """
    differences = [
        {name: clean[name] - corrupted[name] for name in corrupted}
        for clean, corrupted in zip(measured.clean.values, measured.corrupted.values, strict=True)
    ]
    return _effects(measured, measured.corrupted, differences, is_direct=False)


def direct(measured: Measured) -> np.ndarray:
    """Returns the contribution of each component to the margin on its direct path, (L, C, B).

    Later attention and MLPs, and the scales of norms, stay constant.
    """
    return _effects(measured, measured.clean, measured.clean.values, is_direct=True)


def has_direct(model: Any) -> bool:
    """Returns whether the scales of a model's norms can be constant: in all except the encoder."""
    return not isinstance(model, Encoder)


def _effects(measured: Measured, base, terms, is_direct: bool) -> np.ndarray:
    """Returns the sum of gradient times term of each component, (L, C, B).

    Args:
        measured: the network and the prompts.
        base: the pass at which the gradients are taken.
        terms: for each block {address: array with the shape of the activation}.
        is_direct: whether the gradients are those of the direct path.
    """
    blocks, answers = measured.blocks, measured.answers
    slope_BxTxN = _final_slope(*blocks.of_block(-1), base.states[-1], answers, is_direct)
    effects, suffix = [], base.suffix(0)
    for block in reversed(range(blocks.n_blocks)):
        inputs = suffix.tokens_BxT, base.states[block]
        slope_BxTxN, slopes = _block_slopes(
            *blocks.of_block(block), *inputs, slope_BxTxN, is_direct
        )
        effects.append(_by_component(measured, terms[block], slopes))
        measured.progress()
    return np.stack(effects[::-1])


def _by_component(measured: Measured, terms, slopes) -> np.ndarray:
    """Returns the sums of a block's terms times slopes for attention, MLP and heads, (C, B)."""
    n_heads = len(measured.mlp_C) - 2  # 0 if heads are no components
    if HEADS in slopes:
        by_head_HxB = np.asarray((terms[HEADS] * slopes[HEADS]).sum((1, 3))).T
        attention_B = by_head_HxB.sum(0)
    else:
        attention_B = np.asarray((terms[ATTENTION] * slopes[ATTENTION]).sum((1, 2)))
        by_head_HxB = attention_B[None]
    mlp_B = np.zeros_like(attention_B)
    if MLP in slopes:
        mlp_B = np.asarray((terms[MLP] * slopes[MLP]).sum((1, 2)))
    return np.array([attention_B, mlp_B, *by_head_HxB[:n_heads]])


@partial(jax.jit, static_argnames=("model", "is_direct"))
def _final_slope(model, params, states_BxTxN, answers, is_direct) -> jax.Array:
    """Returns the gradient of the score, or of the margin, with respect to the last states."""
    edits: dict[str, Any] = {}
    if is_direct and "final_norm/factor" in addresses(model):
        edits["final_norm/factor"] = jax.lax.stop_gradient

    def total(states_BxTxN):
        scored = take_positions(states_BxTxN, answers.position_BxK)
        tokens = jnp.zeros(scored.shape[:2], jnp.int32)
        logits = intervene(model, params, tokens, {STATES: scored} | edits)
        return (margin if is_direct else score)(logits, answers).sum()

    return jax.grad(total)(states_BxTxN)


@partial(jax.jit, static_argnames=("model", "is_direct"))
def _block_slopes(model, params, tokens_BxT, states_BxTxN, slope_BxTxN, is_direct):
    """Returns the gradients with respect to the states before a block, and to its components.

    Args:
        slope_BxTxN: the gradient with respect to the states after the block.
        is_direct: whether heads, MLP and the scales of norms are constant.
    """
    available = addresses(model)
    attention = HEADS if HEADS in available else ATTENTION
    kept = [attention, MLP] if MLP in available else [attention]
    is_normed = any(name.endswith("norm/factor") for name in available)

    def run(states_BxTxN, shifts):
        def shifted(name):
            def shift(value):
                if is_direct:
                    value = jax.lax.stop_gradient(value)
                return value + shifts[name]

            return shift

        edits: dict[str, Any] = {name: shifted(name) for name in shifts}
        if is_direct and is_normed:
            edits[NORM_FACTOR] = jax.lax.stop_gradient
        out, values, _ = block_output(model, params, tokens_BxT, states_BxTxN, None, 0, edits, kept)
        return out, values

    # The gradient with respect to a zero shift equals the gradient with respect to the activation.
    values = jax.eval_shape(lambda: run(states_BxTxN, {})[1])
    no_shifts = {name: jnp.zeros(x.shape, x.dtype) for name, x in values.items()}
    _, backward, _ = jax.vjp(run, states_BxTxN, no_shifts, has_aux=True)
    return backward(slope_BxTxN)
