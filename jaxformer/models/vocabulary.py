"""Tokens that a model can read."""

from typing import Any

import numpy as np
from jax.core import Tracer

from jaxformer.core.errors import UserError


def check_tokens(model: Any, tokens: Any) -> None:
    """Raises UserError unless tokens are integers (B, T) below the vocabulary size of the model.

    An embedding would return nan for other tokens. Models without a vocabulary take any input.
    """
    size = getattr(getattr(model, "spec", None), "vocab_size", 0)
    if not size or isinstance(tokens, Tracer) or not getattr(tokens, "is_fully_addressable", True):
        return
    if not hasattr(tokens, "dtype"):
        raise UserError(f"tokens must be an array (B, T), got {type(tokens).__name__}.")
    if tokens.ndim != 2 or tokens.dtype.kind not in "iu":
        got = f"{tokens.dtype}{list(tokens.shape)}"
        raise UserError(f"tokens must be integers of shape (B, T), got {got}.")
    tokens = np.asarray(tokens)
    if not tokens.size:
        raise UserError(f"there is no token to read: the prompts have the shape {tokens.shape}.")
    if not 0 <= tokens.min() <= tokens.max() < size:
        raise UserError(
            f"the tokens must be from 0 to {size - 1}, the vocabulary of the model; "
            f"got {tokens.min()} to {tokens.max()}. Are they of another tokenizer?"
        )
