"""Prompts as one batch, and the probabilities of the next token after each."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError

NO_TARGET = -1  # the target token of a prompt without a target
MAX_FILE_BYTES = 10**8


class Prompts(NamedTuple):
    """Prompts of different lengths, padded on the right, where a causal model ignores padding."""

    tokens_BxT: np.ndarray
    ends_Bx1: np.ndarray  # the index of the last token of each prompt
    targets_B: np.ndarray  # the first token of the expected continuation, or NO_TARGET
    notes: tuple[str, ...]  # remarks to print, such as targets of several tokens

    def part(self, start: int, stop: int) -> "Prompts":
        """Returns the prompts from `start` to `stop`."""
        rows = slice(start, stop)
        return Prompts(self.tokens_BxT[rows], self.ends_Bx1[rows], self.targets_B[rows], self.notes)


def parts(prompts: Prompts, at_once: int) -> list[tuple[int, Prompts]]:
    """Splits prompts into parts of equal size, which share one compiled program.

    Args:
        prompts: the prompts.
        at_once: the largest number of prompts in a part.

    Returns:
        The index of the first prompt of each part, and the part. The last part may repeat some
        prompts of the part before it.
    """
    number = len(prompts.tokens_BxT)
    size = min(at_once, number)
    starts = [min(start, number - size) for start in range(0, number, size)]
    return [(start, prompts.part(start, start + size)) for start in starts]


def joined(parts_of_rows: Iterable[tuple[int, np.ndarray]]) -> np.ndarray:
    """Returns one array of the rows of all `parts`, given as (index of the first row, rows)."""
    blocks = list(parts_of_rows)
    last_start, last_rows = blocks[-1]
    whole = np.empty((last_start + len(last_rows), *last_rows.shape[1:]), last_rows.dtype)
    for start, rows in blocks:
        whole[start : start + len(rows)] = rows
    return whole


def pairs(file: Path) -> list[tuple[str, str]]:
    """Reads (prompt, target) pairs from a text file with lines "prompt, tab, target"."""
    if not file.is_file():
        raise UserError(f"no file {str(file)!r}; give a file with a line for each prompt.")
    if file.stat().st_size > MAX_FILE_BYTES:
        raise UserError(
            f"{file} is too large for a list of prompts: it has more than {MAX_FILE_BYTES:,} bytes."
        )
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError:
        raise UserError(f"{file} is no text in UTF-8.") from None
    read = []
    for line_number, line in enumerate(lines, 1):
        prompt, tab, target = line.partition("\t")
        if line.strip() and (not tab or "\t" in target or not prompt.strip() or not target.strip()):
            raise UserError(f"{file}, line {line_number}: expected prompt, tab, target.")
        if line.strip():
            read.append((prompt, target))
    if not read:
        raise UserError(f"{file} has no prompt.")
    return read


def batch(tokenizer: Any, prompts: Sequence[str], targets: Sequence[str] = ()) -> Prompts:
    """Encodes prompts and their targets.

    Args:
        tokenizer: a `jaxformer.models.pretrained.text.Text` or `Numbers`.
        prompts: the prompts.
        targets: the expected continuation of each prompt, or nothing. A space is put before each;
            the first token is its target.
    """
    if targets and len(targets) != len(prompts):
        raise UserError(f"{len(prompts)} prompts need as many targets, got {len(targets)}.")
    encoded = [tokenizer.encode(prompt) for prompt in prompts]
    for prompt, ids in zip(prompts, encoded):
        if not ids:
            raise UserError(f"the prompt {prompt!r} has no token.")
    lengths = np.array([len(ids) for ids in encoded])
    tokens_BxT = np.zeros((len(encoded), lengths.max()), np.int32)
    for row, ids in zip(tokens_BxT, encoded):
        row[: len(ids)] = ids
    targets_B, notes = np.full(len(encoded), NO_TARGET, np.int32), []
    for i, target in enumerate(targets):
        targets_B[i], note = next_token(tokenizer, target)
        if note:
            notes.append(note)
    return Prompts(tokens_BxT, lengths[:, None] - 1, targets_B, tuple(dict.fromkeys(notes)))


def next_token(tokenizer: Any, target: str) -> tuple[int, str]:
    """Returns the first token of " target", and a note if it has more tokens, else ""."""
    spaced = target if target.startswith(" ") else f" {target}"
    pieces = tokenizer.pieces(spaced)
    if not pieces:
        raise UserError(f"the target {target!r} has no token.")
    shown = tokenizer.show(pieces[0])
    note = f"{target!r} is {len(pieces)} tokens: it is scored by its first, {shown}"
    return pieces[0], note if len(pieces) > 1 else ""


@lru_cache(maxsize=8)
def _program(model: Any) -> Any:
    """Returns the jitted function of one model. Parameters are arguments, so it serves cut ones."""

    def log_probabilities(params, tokens_BxT, ends_Bx1):
        logits_BxV = model.apply({"params": params}, tokens_BxT, ends_Bx1)[:, 0]
        return jax.nn.log_softmax(logits_BxV.astype(jnp.result_type(float)))

    return jax.jit(log_probabilities)


def next_log_probabilities(model: Any, params: Any, prompts: Prompts) -> np.ndarray:
    """Returns the log probabilities of the next token after each prompt, (B, V)."""
    return np.asarray(_program(model)(params, prompts.tokens_BxT, prompts.ends_Bx1))


def is_finite(logs_BxV: np.ndarray) -> np.ndarray:
    """Returns for each prompt, (B,), whether all log probabilities are finite numbers."""
    return np.asarray(np.isfinite(logs_BxV).all(1))


def ranks(logs_BxV: np.ndarray, token_B: np.ndarray) -> np.ndarray:
    """Returns the rank of one token after each prompt, (B,): 1 for the likeliest.

    Tied tokens share the mean of their ranks: (V + 1) / 2 where all V tokens are equally likely.
    A prompt after which the log probabilities are not finite has rank nan.
    """
    own_Bx1 = np.take_along_axis(logs_BxV, token_B[:, None], 1)
    likelier_B = (logs_BxV > own_Bx1).sum(1)
    tied_B = (logs_BxV == own_Bx1).sum(1)
    return np.where(is_finite(logs_BxV), likelier_B + (tied_B + 1) / 2, np.nan)


def top_1(logs_BxV: np.ndarray, token_B: np.ndarray) -> np.ndarray:
    """Returns the expected top-1 score of one token after each prompt, (B,), in [0, 1].

    Ties are broken at random: where n tokens are the likeliest, each of them scores 1/n.
    A prompt after which the log probabilities are not finite has the score nan.
    """
    own_Bx1 = np.take_along_axis(logs_BxV, token_B[:, None], 1)
    is_likeliest_B = (logs_BxV <= own_Bx1).all(1)
    tied_B = np.maximum((logs_BxV == own_Bx1).sum(1), 1)
    return np.where(is_finite(logs_BxV), is_likeliest_B / tied_B, np.nan)


def scores(logs_BxV: np.ndarray, targets_B: np.ndarray, against: int = NO_TARGET) -> dict[str, Any]:
    """Returns the mean probability and rank of the target, and of one other token.

    Args:
        logs_BxV: log probabilities of the next token after each prompt.
        targets_B: the target of each prompt. Without all of them the target is not scored.
        against: the other token; NO_TARGET for none.

    Returns:
        Means over the prompts by name. If the logits after any prompt are not finite, all of them
        are None and "reason" counts these prompts.
    """
    found: dict[str, Any] = {}
    if (targets_B != NO_TARGET).all():
        log_p = np.take_along_axis(logs_BxV, targets_B[:, None], 1)[:, 0]
        found |= {
            "p_target": float(np.exp(log_p).mean()),
            "log_p_target": float(log_p.mean()),
            "rank_target": float(ranks(logs_BxV, targets_B).mean()),
            "top_1": float(top_1(logs_BxV, targets_B).mean()),
        }
    if against != NO_TARGET:
        other = np.full(len(logs_BxV), against)
        found["p_against"] = float(np.exp(logs_BxV[:, against]).mean())
        found["rank_against"] = float(ranks(logs_BxV, other).mean())
    undefined = int((~is_finite(logs_BxV)).sum())
    if undefined:
        reason = f"the logits after {undefined} of {len(logs_BxV)} prompts are not finite"
        return dict.fromkeys(found) | {"reason": reason}
    return found
