"""Masking of tokens, as in BERT."""

import jax
import jax.numpy as jnp

from jaxformer.core.errors import UserError, check_choice

MASKINGS = ("plain", "bert")


def check_masking(rate: float, masking: str) -> None:
    """Raises UserError for a rate or a kind of masking that does not exist."""
    if not 0 < rate < 1:
        raise UserError(f"task.rate must be between 0 and 1, got {rate}.")
    check_choice("masking", masking, MASKINGS)


def mask_tokens(
    tokens: jax.Array,
    draws: jax.Array,
    mask_id: int,
    rate: float,
    masking: str,
    vocab_size: int | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Draws which tokens are masked and what is shown in their place.

    Args:
        tokens: integers in 0..vocab_size - 1.
        draws: (3, *tokens.shape) uniform numbers in [0, 1).
        rate: the probability of masking a token.
        masking: "plain" shows the mask at every masked token. "bert" shows the mask at 80 % of
            them, a random token at 10 % and the token itself at 10 %.
        vocab_size: the number of tokens to draw from; by default those below mask_id.

    Returns:
        The token that each position shows if it is masked, and booleans: True for masked tokens.
    """
    u_masked, u_kind, u_token = draws
    shown = jnp.full_like(tokens, mask_id)
    if masking == "bert":
        random = jnp.floor(u_token * (vocab_size or mask_id)).astype(jnp.int32)
        shown = jnp.where(u_kind < 0.8, mask_id, jnp.where(u_kind < 0.9, random, tokens))
    return shown, u_masked < rate
