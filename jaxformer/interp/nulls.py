"""Networks and labels that cannot know the answer: what a number about the inside is worth.

A probe, a circuit or a label that also works on one of these has found nothing of what training
put into the network.

    params = nulls.redraw(params, nulls.blocks(params), key)   all block weights, drawn anew
    params = nulls.redraw(params, ".*/(query|key)/.*", key)    queries and keys only
    params = nulls.untrained(model, key)                       never trained
    labels = nulls.shuffled_labels(labels, key)                labels that say nothing
    edits = nulls.random_mixing(model, params, tokens, key)    attention that sees no token

The first two have the parameters' addresses, the last one those of activations, so that all of them
work for small models, modules of your own and published models alike. `jaxformer.nulls.frozen`
trains a network in which some parts stay random.
"""

import re
import zlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core import paths
from jaxformer.core.errors import UserError, check_choice
from jaxformer.interp.capture.running import capture, shapes
from jaxformer.models.model import Model
from jaxformer.models.texts import as_tokens, check_model_first

HOW = ("gaussian", "permuted")
BLOCK = (
    r"(.*/)?(block|layer)s?[_/]\d+/.*"  # "block_3/..", "blocks/3/.." and the same below a module
)
WEIGHTS = r"(.*/)?attn/weights"
# Draws of the default null, which has all block weights drawn anew.
DRAWS, DRAWS_OF_PUBLISHED = 8, 2
ENOUGH_FOR_INTERVAL = 5  # draws; fewer are shown as points


def redraw(
    params: Mapping[str, Any], pattern: str, key: jax.Array, how: str = "gaussian"
) -> dict[str, Any]:
    """Parameters of which those that a pattern matches are random, with their own size.

    A parameter's draw depends on the key and its address alone, so the same key draws the same
    queries whatever else is drawn.

    Args:
        params: a tree of parameters.
        pattern: a regular expression over addresses of parameters or of modules.
        key: of the draw.
        how: "gaussian" draws each matching parameter from a Gaussian with its mean and standard
            deviation. "permuted" shuffles its numbers, which also keeps their distribution, such as
            a few large ones. A parameter whose numbers are all equal stays what it is.

    Raises:
        UserError: nothing matches, or a matching parameter is not finite.

    Example:
        null = nulls.redraw(params, "block_1/attn", jax.random.key(0))
    """
    check_choice("how", how, HOW)
    drawn = {}
    for path, leaf in paths.select(params, pattern).items():
        value = jnp.asarray(leaf)
        if not jnp.issubdtype(value.dtype, jnp.floating):
            continue  # such as positions that are counted
        if not bool(jnp.isfinite(value).all()):
            raise UserError(f"{path} has numbers that are not finite: a null needs finite ones.")
        drawn[path] = _drawn(value, jax.random.fold_in(key, zlib.crc32(path.encode())), how)
    return paths.replace(params, drawn)


def _drawn(value: jax.Array, key: jax.Array, how: str) -> jax.Array:
    if how == "permuted":
        return jax.random.permutation(key, value.ravel()).reshape(value.shape)
    wide = value.astype(jnp.float32)
    noise = jax.random.normal(key, value.shape)
    return (wide.mean() + wide.std() * noise).astype(value.dtype)


def blocks(params: Mapping[str, Any]) -> str:
    """A pattern of all block weights, for `redraw`; of all weights if no address names a block.

    It is the default null: embeddings and the map to logits stay, because a network that cannot
    name its tokens fails for another reason than one that cannot compute with them.
    """
    has_blocks = any(re.fullmatch(BLOCK, path) for path in paths.flatten(params))
    return BLOCK if has_blocks else ".*"


def drawn_anew(params: Mapping[str, Any], draws: int, seed: int = 0) -> list[dict[str, Any]]:
    """The default null: so many networks whose block weights are all drawn anew."""
    pattern = blocks(params)
    keys = jax.random.split(jax.random.key(seed), draws)
    return [redraw(params, pattern, key) for key in keys]


def untrained(model: Model, key: jax.Array, *inputs: Any) -> dict[str, Any]:
    """The parameters that a model has before training.

    Args:
        model: any model, also one of `jaxformer.load`, whose weights are not read.
        key: of the draw.
        inputs: an example of the inputs; needed by models without a vocabulary only.
    """
    if not inputs:
        if not model.spec.vocab_size:
            raise UserError(
                "a model without a vocabulary reads vectors: give untrained an example of them, as "
                "in untrained(model, key, vectors)."
            )
        length = getattr(model, "example_length", 2)
        inputs = (jnp.zeros((1, length), jnp.int32),)
    return jax.jit(lambda key: model.init(key, *inputs)["params"])(key)


def shuffled_labels(labels: Any, key: jax.Array) -> np.ndarray:
    """The labels in another order: the same classes, as often, of other examples."""
    labels = np.asarray(labels)
    if len(labels) < 2 or (labels == labels[0]).all():
        raise UserError(
            "labels of one class say nothing in any order: give labels of two classes or more."
        )
    return labels[np.asarray(jax.random.permutation(key, len(labels)))]


def random_mixing(
    model: Model, params: Any, tokens: Any, key: jax.Array, pattern: str = WEIGHTS
) -> dict[str, jax.Array]:
    """Attention weights that do not depend on the tokens, as edits of a run.

    Each head attends to the positions that it sees with random weights, which are the same for all
    prompts and sum to 1.

    Args:
        model: a model with addresses of attention weights.
        params: its parameters.
        tokens: the prompts, or texts.
        key: of the draw.
        pattern: of the addresses; by default of all attention weights.

    Returns:
        {address: weights (B, H, T, S)}, for `capture.intervene` and `capture.run`.

    Example:
        edits = nulls.random_mixing(model, params, tokens, jax.random.key(0))
        logits = capture.intervene(model, params, tokens, edits)
    """
    check_model_first(model, params)
    tokens = as_tokens(model, tokens)
    paths.check_pattern(pattern)
    known = shapes(model, params, tokens)
    chosen = [address for address in known if re.fullmatch(pattern, address)]
    if not chosen:
        raise paths.no_match_error(pattern, list(known))
    # Where the network attends at all says which positions a head sees.
    names = [re.escape(address) for address in chosen]
    weights = capture(model, params, tokens, names=names)
    edits = {}
    for address, value in weights.items():
        _, n_heads, n_queries, n_keys = value.shape
        own_key = jax.random.fold_in(key, zlib.crc32(address.encode()))
        scores = jax.random.normal(own_key, (n_heads, n_queries, n_keys))
        is_seen = (value > 0).any((0, 1))
        if model.spec.causal:
            is_seen = jnp.tril(jnp.ones((n_queries, n_keys), bool), n_keys - n_queries)
        mixed = jax.nn.softmax(jnp.where(is_seen, scores, -jnp.inf), -1)
        edits[address] = jnp.broadcast_to(mixed.astype(value.dtype), value.shape)
    return edits
