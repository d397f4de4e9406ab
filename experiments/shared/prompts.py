"""Prompts as one batch, and what a model says comes next."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.errors import UserError

NONE = -1  # a prompt without a target


class Prompts(NamedTuple):
    """Prompts of any lengths, padded on the right: a causal model does not see the padding."""

    tokens_BxT: np.ndarray
    ends_Bx1: np.ndarray  # the last token of each
    targets_B: np.ndarray  # the first token of what should come next, or NONE
    notes: tuple[str, ...]  # what a reader must know of them

    def part(self, start: int, stop: int) -> "Prompts":
        rows = slice(start, stop)
        return Prompts(self.tokens_BxT[rows], self.ends_Bx1[rows], self.targets_B[rows], self.notes)


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


def compiled(model: Any) -> int:
    """How many programs were compiled for a model."""
    return _program(model)._cache_size()


def next_log_probabilities(model: Any, params: Any, asked: Prompts) -> np.ndarray:
    """(B, V): log p of what comes after each prompt."""
    return np.asarray(_program(model)(params, asked.tokens_BxT, asked.ends_Bx1))


def ranks(logs_BxV: np.ndarray, token_B: np.ndarray) -> np.ndarray:
    """1 for the likeliest token."""
    own = np.take_along_axis(logs_BxV, token_B[:, None], 1)
    return (logs_BxV > own).sum(1) + 1


def scores(logs_BxV: np.ndarray, targets_B: np.ndarray, against: int = NONE) -> dict[str, float]:
    """Means over the prompts: probability and rank of the target, and of one other token."""
    found: dict[str, float] = {}
    if (targets_B != NONE).all():
        log_p = np.take_along_axis(logs_BxV, targets_B[:, None], 1)[:, 0]
        rank = ranks(logs_BxV, targets_B)
        found |= {
            "p_target": float(np.exp(log_p).mean()),
            "log_p_target": float(log_p.mean()),
            "rank_target": float(rank.mean()),
            "top_1": float((rank == 1).mean()),
        }
    if against != NONE:
        other = np.full(len(logs_BxV), against)
        found["p_against"] = float(np.exp(logs_BxV[:, against]).mean())
        found["rank_against"] = float(ranks(logs_BxV, other).mean())
    return found
