"""The network that has one block of another network, and its read-out.

Blocks that differ only in their parameters give equal networks of one block, so that they share
compiled programs.

Shape letters: see `jaxformer.interp`.
"""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.core.errors import UserError
from jaxformer.models.activation_points import Request
from jaxformer.models.decoder import Decoder
from jaxformer.models.encoder import Encoder
from jaxformer.models.model import Model
from jaxformer.models.pretrained.network import Pretrained
from jaxformer.models.recall import Recall

# The addresses of the states that enter and leave the block of a model of one block.
BEFORE, STATES = "block_0/before", "block_0/states"
PREFIX = "block_0/"


def is_divisible(model: Model) -> bool:
    """Returns whether the blocks of a model can be run one at a time."""
    return type(model) in (Decoder, Encoder, Pretrained, Recall) and model.spec.vocab_size > 0


def check_divisible(model: Any) -> None:
    """Raises unless the blocks of a model can be run one at a time."""
    if not is_divisible(model):
        raise UserError(
            f"the blocks of {type(model).__name__} cannot be run alone: expected a decoder, an "
            "encoder, a recall model or a published model, with tokens as inputs."
        )


def count_blocks(model: Any) -> int:
    """The number of blocks of a model that `is_divisible`."""
    check_divisible(model)
    spec = model.spec
    return len(spec.feed_forward) if isinstance(model, Recall) else spec.layers


def one_block(model: Any, block: int) -> Any:
    """Returns the model that has only this block, as block_0.

    Two blocks that differ only in their parameters give equal models, so that jit compiles once.
    """
    spec = model.spec
    if isinstance(model, Recall):
        return model.clone(spec=dataclasses.replace(spec, feed_forward=(spec.feed_forward[block],)))
    if isinstance(model, Pretrained):
        return model.clone(spec=spec.of_block(block))
    changes: dict[str, Any] = {"layers": 1, "scan": False}
    if isinstance(model, Decoder):
        # The branch factor keeps its value at the depth of the whole model.
        changes |= {"branch_scale": spec.branch, "depth_alpha": 0.0, "remat": False}
    return model.clone(spec=dataclasses.replace(spec, **changes))


def read(model: Any, params: Any, states_BxKxN: jax.Array) -> jax.Array:
    """Returns the logits (B, K, V) of states after the last block; `model` has one block."""
    return _read(model, params, states_BxKxN)


@partial(jax.jit, static_argnames=("model",))
def _read(model, params, states_BxKxN):
    tokens_BxK = jnp.zeros(states_BxKxN.shape[:2], jnp.int32)
    with Request((), {STATES: states_BxKxN}).active():
        return model.apply({"params": params}, tokens_BxK)
