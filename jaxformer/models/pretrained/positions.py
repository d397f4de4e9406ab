"""Masks, rotary angles and biases of the scores, shared by all blocks of the same kind.

A slot is the index of a token in the cache, or in the text if there is no cache.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.models.pretrained.rotary import Rotary
from jaxformer.models.pretrained.spec import PretrainedSpec


class ScoreInputs(NamedTuple):
    """The mask, the rotary angles and the biases that the scores of a block depend on."""

    mask_BxTxS: jax.Array
    needs_mask: bool  # whether it hides more than the tokens after a causal one
    angles_BxTxk: Any  # of the rotary positions, or None
    bias: jax.Array | None  # (B, H, 1, S), added to the scores


class SharedScoreInputs:
    """The masks, angles and biases of a forward pass; each one is computed once.

    Args:
      spec: the hyperparameters of the model.
      seen_BxS: booleans, true at slots with a real token.
      start: the slot of the first new token.
      position_BxT: the positions of the new tokens.
      has_free_slots: whether there may be slots without a real token: padding or a cache.
    """

    def __init__(
        self,
        spec: PretrainedSpec,
        seen_BxS: Any,
        start: Any,
        position_BxT: jax.Array,
        has_free_slots: bool,
    ):
        self.spec, self.start, self.seen_BxS = spec, start, seen_BxS
        self.position_BxT, self.has_free_slots = position_BxT, has_free_slots
        self.masks: dict[int, jax.Array] = {}  # {window: mask}
        self.angles: dict[Rotary, jax.Array] = {}
        self.bias = alibi(spec, seen_BxS) if spec.alibi else None

    def of_block(self, block: int) -> ScoreInputs:
        """Returns the mask, angles and bias of a block."""
        window, rotary = self.spec.window_of(block), self.spec.rotary_of(block)
        T = self.position_BxT.shape[1]
        if window not in self.masks:
            self.masks[window] = visible(self.seen_BxS, self.start, T, window, self.spec.causal)
        if rotary is not None and rotary not in self.angles:
            self.angles[rotary] = rotary.angles(self.position_BxT)
        angles_BxTxk = None if rotary is None else self.angles[rotary]
        needs_mask = self.has_free_slots or 0 < window < T
        return ScoreInputs(self.masks[window], needs_mask, angles_BxTxk, self.bias)


def visible(seen_BxS: jax.Array, start: Any, T: int, window: int, causal: bool = True) -> jax.Array:
    """Returns the attention mask, (B, T, S).

    The token in slot start + t attends to the real tokens among the last `window` slots, of which
    its own is the last. Padding attends to itself, so that its rows have finite weights.

    Args:
      seen_BxS: booleans, true at slots with a real token.
      start: the slot of the first of the T tokens.
      T: the number of tokens.
      window: the number of slots that a token attends to; 0 is no limit.
      causal: whether later slots are hidden.
    """
    slot_T, slot_S = start + jnp.arange(T), jnp.arange(seen_BxS.shape[1])
    back_TxS = slot_T[:, None] - slot_S[None]
    mask_TxS = back_TxS >= 0 if causal else jnp.ones_like(back_TxS, bool)
    if window:
        mask_TxS &= back_TxS < window
    return (mask_TxS[None] & seen_BxS[:, None]) | (back_TxS == 0)[None]


def alibi(spec: PretrainedSpec, seen_BxS: jax.Array) -> jax.Array:
    """Returns Falcon's bias slope_h position_s / sqrt(D), (B, H, 1, S).

    transformers rounds the products to bfloat16, and so does this function.
    """
    position_BxS = (jnp.cumsum(seen_BxS, 1) - 1) * seen_BxS
    slopes_H = jnp.asarray(_alibi_slopes(spec.heads), jnp.bfloat16)
    position_Bx1x1xS = position_BxS[:, None, None].astype(jnp.bfloat16)
    bias = slopes_H[None, :, None, None] * position_Bx1x1xS
    return bias.astype(jnp.result_type(float)) * spec.head_width**-0.5


def _alibi_slopes(heads: int) -> np.ndarray:
    """Returns ALiBi's slopes, (H,).

    P is the largest power of 2 up to H. The first P heads have 2^(-8 h / P) with h = 1 .. P, the
    others 2^(-4 h / P) with h = 1, 3, 5, ..
    """
    P = 2 ** math.floor(math.log2(heads))
    slopes = 2.0 ** (-8 * np.arange(1, P + 1) / P)
    further = 2.0 ** (-4 * np.arange(1, 2 * (heads - P) + 1, 2) / P)
    return np.concatenate([slopes, further])
