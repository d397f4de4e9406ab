"""Prompts as one batch of tokens, and the probabilities, ranks and scores of their next token.

B is the axis of prompts, T that of tokens, V the vocabulary.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.interp.prompts import first_token, tab_separated

NO_TOKEN = -1  # stands for a missing target


class PromptBatch(NamedTuple):
    """Prompts of any lengths, padded on the right, where a causal model does not attend."""

    tokens_BxT: np.ndarray
    ends_Bx1: np.ndarray  # the position of the last token of each prompt
    targets_B: np.ndarray  # the first token of the right continuation, or NO_TOKEN
    notes: tuple[str, ...]  # remarks for the reader, such as a target of several tokens

    def part(self, start: int, stop: int) -> "PromptBatch":
        rows = slice(start, stop)
        return PromptBatch(
            self.tokens_BxT[rows], self.ends_Bx1[rows], self.targets_B[rows], self.notes
        )


def split(batch: PromptBatch, size: int) -> list[tuple[int, PromptBatch]]:
    """Splits a batch into parts of equal size, so that one compiled program serves all of them.

    The last part may repeat some prompts of the one before it.

    Returns:
      For each part the index of its first prompt, and the part.
    """
    n_prompts = len(batch.tokens_BxT)
    size = min(size, n_prompts)
    starts = [min(start, n_prompts - size) for start in range(0, n_prompts, size)]
    return [(start, batch.part(start, start + size)) for start in starts]


def join(parts: Iterable[tuple[int, np.ndarray]]) -> np.ndarray:
    """Joins the rows of all parts, given the index of the first row of each."""
    parts = list(parts)
    last_start, last_rows = parts[-1]
    joined = np.empty((last_start + len(last_rows), *last_rows.shape[1:]), last_rows.dtype)
    for start, rows in parts:
        joined[start : start + len(rows)] = rows
    return joined


def read_prompts(file: Path) -> list[tuple[str, str]]:
    """Reads (prompt, target) pairs from a text file with a line "PROMPT, tab, TARGET" for each."""
    pairs = []
    for number, columns in tab_separated(file):
        if len(columns) != 2 or not all(map(str.strip, columns)):
            raise UserError(f"{file}, line {number}: expected prompt, tab, target.")
        pairs.append((columns[0], columns[1]))
    return pairs


def encode(tokenizer: Any, prompts: Sequence[str], targets: Sequence[str] = ()) -> PromptBatch:
    """Encodes prompts, and targets with a space before them, as one batch.

    Args:
      tokenizer: A tokenizer with `encode(text)`, `pieces(text)` and `show(token)`.
      prompts: Texts.
      targets: The right continuation of each prompt, or nothing.
    """
    if targets and len(targets) != len(prompts):
        raise UserError(f"{len(prompts)} prompts need as many targets, got {len(targets)}.")
    ids = [tokenizer.encode(prompt) for prompt in prompts]
    for prompt, tokens in zip(prompts, ids):
        if not tokens:
            raise UserError(f"the prompt {prompt!r} has no token.")
    lengths = np.array([len(tokens) for tokens in ids])
    tokens_BxT = np.zeros((len(ids), lengths.max()), np.int32)
    for row, tokens in zip(tokens_BxT, ids):
        row[: len(tokens)] = tokens
    targets_B, notes = np.full(len(ids), NO_TOKEN, np.int32), []
    for i, target in enumerate(targets):
        targets_B[i], note = first_token(tokenizer, target)
        if note:
            notes.append(note)
    return PromptBatch(tokens_BxT, lengths[:, None] - 1, targets_B, tuple(dict.fromkeys(notes)))


@lru_cache(maxsize=8)
def _program(model: Any) -> Any:
    """Compiles a model as a function of its parameters, so that cut models do not recompile."""

    def apply(params, tokens_BxT, ends_Bx1):
        logits_BxV = model.apply({"params": params}, tokens_BxT, ends_Bx1)[:, 0]
        return jax.nn.log_softmax(logits_BxV.astype(jnp.result_type(float)))

    return jax.jit(apply)


def log_probabilities(model: Any, params: Any, batch: PromptBatch) -> np.ndarray:
    """Returns the log probabilities of the token after each prompt, (B, V)."""
    return np.asarray(_program(model)(params, batch.tokens_BxT, batch.ends_Bx1))


def is_finite(logs_BxV: np.ndarray) -> np.ndarray:
    """Returns for each prompt, (B,), whether all log probabilities are finite numbers."""
    return np.asarray(np.isfinite(logs_BxV).all(1))


def ranks(logs_BxV: np.ndarray, token_B: np.ndarray) -> np.ndarray:
    """Returns the rank of one token after each prompt, (B,): 1 for the likeliest.

    Tied tokens share the mean of their ranks: (V + 1) / 2 where all V tokens are equally likely.
    A prompt after which the log probabilities are not finite has rank nan.
    """
    log_p_Bx1 = np.take_along_axis(logs_BxV, token_B[:, None], 1)
    likelier_B = (logs_BxV > log_p_Bx1).sum(1)
    tied_B = (logs_BxV == log_p_Bx1).sum(1)
    return np.where(is_finite(logs_BxV), likelier_B + (tied_B + 1) / 2, np.nan)


def top_1(logs_BxV: np.ndarray, token_B: np.ndarray) -> np.ndarray:
    """Returns the expected top-1 score of one token after each prompt, (B,), in [0, 1].

    Ties are broken at random: where n tokens are the likeliest, each of them scores 1/n.
    A prompt after which the log probabilities are not finite has the score nan.
    """
    log_p_Bx1 = np.take_along_axis(logs_BxV, token_B[:, None], 1)
    is_likeliest_B = (logs_BxV <= log_p_Bx1).all(1)
    tied_B = np.maximum((logs_BxV == log_p_Bx1).sum(1), 1)
    return np.where(is_finite(logs_BxV), is_likeliest_B / tied_B, np.nan)


def scores(logs_BxV: np.ndarray, targets_B: np.ndarray, against: int = NO_TOKEN) -> dict[str, Any]:
    """Returns means over the prompts: probability and rank of the target and of one other token.

    Scores of the target need a target for every prompt. If the logits after any prompt are not
    finite, all scores are None and "reason" counts these prompts.
    """
    values: dict[str, Any] = {}
    if (targets_B != NO_TOKEN).all():
        log_p = np.take_along_axis(logs_BxV, targets_B[:, None], 1)[:, 0]
        values |= {
            "p_target": float(np.exp(log_p).mean()),
            "log_p_target": float(log_p.mean()),
            "rank_target": float(ranks(logs_BxV, targets_B).mean()),
            "top_1": float(top_1(logs_BxV, targets_B).mean()),
        }
    if against != NO_TOKEN:
        other = np.full(len(logs_BxV), against)
        values["p_against"] = float(np.exp(logs_BxV[:, against]).mean())
        values["rank_against"] = float(ranks(logs_BxV, other).mean())
    undefined = int((~is_finite(logs_BxV)).sum())
    if undefined:
        reason = f"the logits after {undefined} of {len(logs_BxV)} prompts are not finite"
        return dict.fromkeys(values) | {"reason": reason}
    return values
