"""Prompts as one batch, and what a model says comes next."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError

NONE = -1  # a prompt without a target
LONGEST = 10**8  # bytes of a file of prompts


class Prompts(NamedTuple):
    """Prompts of any lengths, padded on the right: a causal model does not see the padding."""

    tokens_BxT: np.ndarray
    ends_Bx1: np.ndarray  # the last token of each
    targets_B: np.ndarray  # the first token of what should come next, or NONE
    notes: tuple[str, ...]  # what a reader must know of them

    def part(self, start: int, stop: int) -> "Prompts":
        rows = slice(start, stop)
        return Prompts(self.tokens_BxT[rows], self.ends_Bx1[rows], self.targets_B[rows], self.notes)


def parts(asked: Prompts, at_once: int) -> list[tuple[int, Prompts]]:
    """[(its first row, a part)] of equal size, so that there is one program.

    The last part may repeat some prompts of the one before it.
    """
    number = len(asked.tokens_BxT)
    size = min(at_once, number)
    starts = [min(start, number - size) for start in range(0, number, size)]
    return [(start, asked.part(start, start + size)) for start in starts]


def joined(parts_of_rows: Iterable[tuple[int, np.ndarray]]) -> np.ndarray:
    """The rows of all parts, each at its place."""
    found = list(parts_of_rows)
    last, rows = found[-1]
    whole = np.empty((last + len(rows), *rows.shape[1:]), rows.dtype)
    for start, rows in found:
        whole[start : start + len(rows)] = rows
    return whole


def pairs(file: Path) -> list[tuple[str, str]]:
    """[(prompt, target)] of a text file, a line each: prompt, tab, target."""
    if not file.is_file():
        raise UserError(f"no file {str(file)!r}; it holds a line for each prompt.")
    if file.stat().st_size > LONGEST:
        raise UserError(f"{file} has more than {LONGEST:,} bytes: it is no list of prompts.")
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError:
        raise UserError(f"{file} is no text in UTF-8.") from None
    found = []
    for place, line in enumerate(lines, 1):
        prompt, tab, target = line.partition("\t")
        if line.strip() and (not tab or "\t" in target or not prompt.strip() or not target.strip()):
            raise UserError(f"{file}, line {place}: expected prompt, tab, target.")
        if line.strip():
            found.append((prompt, target))
    if not found:
        raise UserError(f"{file} has no prompt.")
    return found


def batch(words: Any, prompts: Sequence[str], targets: Sequence[str] = ()) -> Prompts:
    """`words` encodes. A target is read with a space before it and scored by its first token."""
    if targets and len(targets) != len(prompts):
        raise UserError(f"{len(prompts)} prompts need as many targets, got {len(targets)}.")
    ids = [words.encode(prompt) for prompt in prompts]
    for prompt, found in zip(prompts, ids):
        if not found:
            raise UserError(f"the prompt {prompt!r} has no token.")
    lengths = np.array([len(found) for found in ids])
    tokens_BxT = np.zeros((len(ids), lengths.max()), np.int32)
    for row, found in zip(tokens_BxT, ids):
        row[: len(found)] = found
    first, notes = np.full(len(ids), NONE, np.int32), []
    for i, target in enumerate(targets):
        first[i], several = next_token(words, target)
        if several:
            notes.append(several)
    return Prompts(tokens_BxT, lengths[:, None] - 1, first, tuple(dict.fromkeys(notes)))


def next_token(words: Any, target: str) -> tuple[int, str]:
    """(the first token of " target", a note if there are more)."""
    spaced = target if target.startswith(" ") else f" {target}"
    pieces = words.pieces(spaced)
    if not pieces:
        raise UserError(f"the target {target!r} has no token.")
    shown = words.show(pieces[0])
    several = f"{target!r} is {len(pieces)} tokens: it is scored by its first, {shown}"
    return pieces[0], several if len(pieces) > 1 else ""


@lru_cache(maxsize=8)
def _program(model: Any) -> Any:
    """Compiled once for a model and a shape: parameters are arguments, cut or not."""

    def log_probabilities(params, tokens_BxT, ends_Bx1):
        logits_BxV = model.apply({"params": params}, tokens_BxT, ends_Bx1)[:, 0]
        return jax.nn.log_softmax(logits_BxV.astype(jnp.result_type(float)))

    return jax.jit(log_probabilities)


def next_log_probabilities(model: Any, params: Any, asked: Prompts) -> np.ndarray:
    """(B, V): log p of what comes after each prompt."""
    return np.asarray(_program(model)(params, asked.tokens_BxT, asked.ends_Bx1))


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


def scores(logs_BxV: np.ndarray, targets_B: np.ndarray, against: int = NONE) -> dict[str, Any]:
    """Returns means over the prompts: probability and rank of the target and of one other token.

    If the logits after any prompt are not finite, all scores are None and "reason" names it.
    """
    found: dict[str, Any] = {}
    if (targets_B != NONE).all():
        log_p = np.take_along_axis(logs_BxV, targets_B[:, None], 1)[:, 0]
        found |= {
            "p_target": float(np.exp(log_p).mean()),
            "log_p_target": float(log_p.mean()),
            "rank_target": float(ranks(logs_BxV, targets_B).mean()),
            "top_1": float(top_1(logs_BxV, targets_B).mean()),
        }
    if against != NONE:
        other = np.full(len(logs_BxV), against)
        found["p_against"] = float(np.exp(logs_BxV[:, against]).mean())
        found["rank_against"] = float(ranks(logs_BxV, other).mean())
    undefined = int((~is_finite(logs_BxV)).sum())
    if undefined:
        reason = f"the logits after {undefined} of {len(logs_BxV)} prompts are not finite"
        return dict.fromkeys(found) | {"reason": reason}
    return found
