"""Draws pairs of prompts with different answers for a program."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError, check_range
from jaxformer.interp.answers import Answers
from jaxformer.interp.known import meaning
from jaxformer.interp.known.program import ANSWER, NUMBER, Choose, Program

DRAWN = 2048  # prompts from which pairs are made


class Pairs(NamedTuple):
    """Pairs of prompts, as `circuits.Wiring` takes them."""

    clean: np.ndarray  # (B, T)
    corrupted: np.ndarray  # (B, T)
    answers: Answers  # of the clean prompts, against those of the corrupted ones


def value(logits_BxKxV: jax.Array, answers: Answers) -> jax.Array:
    """The output of a network that returns a number, (B,); a metric for `circuits.Wiring`."""
    weight_BxK = answers.weight_BxK
    return (logits_BxKxV[..., 0] * weight_BxK).sum(-1) / weight_BxK.sum(-1)


def sample(program: Program, n: int, seed: int) -> Pairs:
    """Draws pairs; raises UserError if the program answers too few prompts in different ways.

    Both prompts of a pair make the same choice (`Choose`). Where the choice falls on the rarer
    head, the corrupted answer is what the other head would say, so that its loss is seen.

    Args:
        program: the program.
        n: the number of pairs.
        seed: of the draw.
    """
    check_range("the number of pairs", n, 2, 100_000)
    random = np.random.default_rng([seed, n])
    choice = next((s for s in program.steps.values() if isinstance(s, Choose)), None)
    n_chosen = 0 if choice is None else max(round(choice.share * n), 1)
    parts = [_pairs(program, n - n_chosen, None, random)]
    if choice is not None:
        parts.append(_pairs(program, n_chosen, choice.token, random))
    clean, corrupted, right, wrong = (np.concatenate(x) for x in zip(*parts, strict=True))
    order = random.permutation(n)
    return _as_pairs(program, clean[order], corrupted[order], right[order], wrong[order])


def _pairs(
    program: Program, n: int, last: int | None, random: np.random.Generator
) -> tuple[np.ndarray, ...]:
    """Pairs of prompts and their answers: clean, corrupted, right, wrong.

    Args:
        last: the last token of all prompts; None avoids the token of `Choose`.
    """
    clean, corrupted, right, wrong = [], [], [], []
    tries = 0
    while len(clean) < n:
        tries += 1
        if tries > 20 + n // 50:
            raise UserError(
                f"found {len(clean)} of {n} pairs of prompts with different answers in "
                f"{tries * DRAWN:,} draws: the program answers too few prompts, or all alike."
            )
        tokens_PxT = _prompts(program, last, random)
        answer_P = meaning.answers(program, tokens_PxT)
        expected_P = None
        if last is not None:
            expected_P = meaning.answers(program, tokens_PxT, is_flipped=True)
        is_defined_P = ~np.isnan(answer_P)
        partners = np.flatnonzero(is_defined_P)
        for i in partners:
            if len(clean) == n:
                break
            if expected_P is None:
                fits_P = np.abs(answer_P - answer_P[i]) > 1e-6
            else:
                fits_P = (answer_P == expected_P[i]) & (answer_P != answer_P[i])
            candidates = np.flatnonzero(fits_P & is_defined_P)
            if len(candidates):
                j = random.choice(candidates)
                clean.append(tokens_PxT[i])
                corrupted.append(tokens_PxT[j])
                right.append(answer_P[i])
                wrong.append(answer_P[j])
    shape = n, program.length
    return (
        np.reshape(clean, shape).astype(np.int32),
        np.reshape(corrupted, shape).astype(np.int32),
        np.array(right),
        np.array(wrong),
    )


def _prompts(program: Program, last: int | None, random: np.random.Generator) -> np.ndarray:
    """Random prompts that begin with token 0, (P, T)."""
    tokens_PxT = random.integers(1, program.vocab_size, (DRAWN, program.length))
    tokens_PxT[:, 0] = 0
    if last is not None:
        tokens_PxT[:, -1] = last
        return tokens_PxT
    for step in program.steps.values():
        if isinstance(step, Choose):
            tokens_PxT = tokens_PxT[tokens_PxT[:, -1] != step.token]
    return tokens_PxT


def _as_pairs(
    program: Program,
    clean: np.ndarray,
    corrupted: np.ndarray,
    right_B: np.ndarray,
    wrong_B: np.ndarray,
) -> Pairs:
    dtype = np.float32 if program.sizes[ANSWER] == NUMBER else np.int32
    last_Bx1 = np.full((len(clean), 1), program.length - 1, np.int32)
    answers = Answers(
        jnp.asarray(last_Bx1),
        jnp.asarray(right_B[:, None].astype(dtype)),
        jnp.asarray(wrong_B[:, None].astype(dtype)),
        jnp.ones(last_Bx1.shape, jnp.float32),
    )
    return Pairs(clean, corrupted, answers)
