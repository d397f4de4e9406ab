"""Prompts in a text file with tabs, and where and by which token an answer is scored."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxformer.core.errors import UserError

MAX_FILE_BYTES = 10**8


def tab_separated(file: Path) -> list[tuple[int, list[str]]]:
    """Returns (line number, columns) of each line of a text file that is not empty."""
    if not file.is_file():
        raise UserError(f"no file {str(file)!r}; expected one with a line for each prompt.")
    if file.stat().st_size > MAX_FILE_BYTES:
        raise UserError(f"{file} has more than {MAX_FILE_BYTES:,} bytes: it is no list of prompts.")
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError:
        raise UserError(f"{file} is no text in UTF-8.") from None
    numbered = [(number, line.split("\t")) for number, line in enumerate(lines, 1) if line.strip()]
    if not numbered:
        raise UserError(f"{file} has no prompt.")
    return numbered


def answer_position(tokens: Sequence[int], tokenizer: Any, causal: bool, where: str) -> int:
    """The position at which a model predicts the answer of a prompt.

    A causal model continues the prompt, so that its answer is at the last token. An encoder fills
    in the one mask token of the prompt.

    Args:
        tokens: the tokens of the prompt.
        tokenizer: the model's, with `mask`.
        causal: whether the model's tokens attend to earlier tokens only.
        where: what the prompt is called in errors.
    """
    if causal:
        return len(tokens) - 1
    masked = [i for i, token in enumerate(tokens) if token == tokenizer.mask]
    if len(masked) != 1:
        name = "mask token" if tokenizer.mask < 0 else tokenizer.show(tokenizer.mask)
        raise UserError(
            f"{where}: this model attends to later tokens and fills in masked ones, so a prompt "
            f"needs one {name} in place of its answer, got {len(masked)}."
        )
    return masked[0]


def first_token(tokenizer: Any, target: str) -> tuple[int, str]:
    """Returns the first token of " TARGET", and a note if TARGET has several tokens."""
    pieces = tokenizer.pieces(target if target.startswith(" ") else f" {target}")
    if not pieces:
        raise UserError(f"the target {target!r} has no token.")
    if len(pieces) == 1:
        return pieces[0], ""
    first = tokenizer.show(pieces[0])
    return pieces[0], f"{target!r} is {len(pieces)} tokens: it is scored by its first, {first}"
