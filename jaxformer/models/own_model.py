"""Tries a model that is not of this package: is it causal, and is it still the same model?

Both need one forward pass. Its parameters are drawn at random here, because a module that starts
with zeros in its last layer would hide what it reads. Its own initial parameters are a part of its
identity too (`initial_identity`), since an edit of an initializer changes nothing else.
"""

from dataclasses import is_dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core import paths
from jaxformer.core.errors import UserError, is_users, users_code
from jaxformer.core.identity import float_identity
from jaxformer.models.model import Model
from jaxformer.models.pretrained_init import FromParams
from jaxformer.models.wrap import Wrapped

TOLERANCE = 1e-5  # of the largest logit; a masked token moves earlier logits by rounding at most


def is_frozen_value(model: Any) -> bool:
    """Whether equal models compute the same: the Linen modules of this package are frozen values.

    A wrapped module and a model with given parameters are no dataclasses, because they contain what
    a user wrote.
    """
    return is_dataclass(model) and not is_users(model)


def model_identity(model: Model, inputs: Any) -> dict[str, float]:
    """Numbers that identify a model by what it computes; refuses one that reads later tokens.

    Networks of this package give {}: their spec identifies them, and they are causal by
    construction.

    Args:
        model: the model.
        inputs: (B, T) valid tokens, or (B, T, n) vectors; the first one is used.

    Raises:
        UserError: `spec.causal` is True and the logits at a position depend on later tokens.
    """
    name = getattr(model.spec, "module", type(model).__name__)[:60]
    if isinstance(model, FromParams):
        model = model.model
    if not is_users_code(model):
        return {}
    first = np.asarray(inputs)[0]
    length = len(first)
    sequences, starts = [first], ()
    if model.spec.causal and model.spec.vocab_size and length > 1:
        other = (first + 1) % model.spec.vocab_size
        # Where the second and the third sequence begin to differ from the first.
        starts = (length - 1, length // 2)
        sequences += [np.where(np.arange(length) < start, first, other) for start in starts]
    with users_code(name):
        logits = np.asarray(jax.jit(lambda x: _random_logits(model, x))(np.stack(sequences)))
    limit = TOLERANCE * np.abs(logits[0]).max()
    for start, changed in zip(starts, logits[1:], strict=True):
        moved = np.abs(changed[:start] - logits[0, :start]).max(-1)
        if moved.max() > limit:
            raise UserError(
                f"{name} depends on later tokens: the logits at position {moved.argmax()} change "
                f"if only tokens from position {start} on do. Mask its attention, or say "
                "causal=False (jaxformer.wrap) if it may read a sequence from both sides."
            )
    return {"the model's logits": float_identity(logits)}


def initial_identity(model: Model, params: Any) -> dict[str, float]:
    """Numbers that identify the initial parameters of a model of the user, one for each.

    Networks of this package give {}, because their spec identifies them, and so do models with
    given parameters, which the config of a run identifies.

    Args:
        model: the model.
        params: what its `init` returned, as NumPy arrays.
    """
    if not is_users_code(model):
        return {}
    return {f"initial {path}": float_identity(x) for path, x in paths.flatten(params).items()}


def is_users_code(model: Any) -> bool:
    """Whether what a model computes is written by the user."""
    return is_users(model) or isinstance(model, Wrapped)


def _random_logits(model: Model, inputs: jax.Array) -> jax.Array:
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), inputs[:1])["params"])
    leaves, tree = jax.tree.flatten(shapes)

    def draw(i: int, leaf: Any) -> jax.Array:
        fan_in = leaf.shape[-2] if len(leaf.shape) > 1 else 1
        key = jax.random.fold_in(jax.random.key(0), i)
        return (jax.random.normal(key, leaf.shape) / fan_in**0.5).astype(leaf.dtype)

    params = jax.tree.unflatten(tree, [draw(i, leaf) for i, leaf in enumerate(leaves)])
    return model.apply({"params": params}, inputs).astype(jnp.float32)
