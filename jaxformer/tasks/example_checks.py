"""Checks of examples that a task has drawn. Each error names the first wrong number."""

import math
from collections.abc import Mapping

import jax
import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.tasks.task import Batch, Task

CHECKED_DRAWS = 4  # of a task that may depend on more than its key


def check_answers(task: Task) -> None:
    """Raises a UserError if the task has a single answer, which is always right."""
    if task.vocab_size and task.answers < 2:
        raise UserError(
            f"{type(task).__name__} has {task.answers} possible answer: there is nothing to learn."
        )


def check_set(task: Task, batch: Batch, where: str) -> None:
    """Raises a UserError unless a model can be trained and scored on these examples.

    Args:
        task: the task that drew them.
        batch: NumPy arrays with a leading axis of examples.
        where: what the set is called in messages.
    """
    inputs, targets, weights = (np.asarray(x) for x in batch)
    if targets.shape != weights.shape:
        raise UserError(
            f"{where}: targets {targets.shape} and weights {weights.shape} must have one shape."
        )
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        wrong = weights[~(np.isfinite(weights) & (weights >= 0))][0]
        raise UserError(f"{where}: weights must be finite and at least 0, got {wrong:g}.")
    if task.vocab_size:
        _check_tokens(task, inputs, where)
        _check_targets(task, targets, weights, where)
    elif not np.isfinite(inputs).all():
        raise UserError(f"{where}: inputs must be finite, got {inputs[~np.isfinite(inputs)][0]}.")
    n_scored = (weights > 0).sum(-1)
    if not n_scored.any():
        raise UserError(f"{where}: no position has a weight above 0, so nothing is scored.")
    if n_scored.max() > task.n_scored:
        raise UserError(
            f"{where}: an example has {n_scored.max()} scored positions (weights above 0), and "
            f"n_scored is {task.n_scored}: the others would be dropped. Raise n_scored."
        )


def check_answers_are_hidden(task: Task, batch: Batch, causal: bool) -> None:
    """Raises a UserError if every answer is the next token, and the model attends to it.

    Such a model copies its answers: it scores well and has learned nothing.

    Args:
        task: the task that drew the batch.
        batch: arrays with a leading axis of examples.
        causal: whether the model's tokens attend to earlier tokens only.
    """
    inputs, targets, weights = (np.asarray(x) for x in batch)
    if causal or not task.vocab_size or targets.shape != inputs.shape:
        return
    is_scored = weights[:, :-1] > 0
    if is_scored.any() and (targets[:, :-1] == inputs[:, 1:])[is_scored].all():
        raise UserError(
            f"{type(task).__name__} asks for the next token, and this model attends to later "
            "tokens, so that it would copy its answers: build it with causal=True, or mask tokens "
            "(the task masked_tokens)."
        )


def _check_tokens(task: Task, inputs: np.ndarray, where: str) -> None:
    if not np.issubdtype(inputs.dtype, np.integer):
        raise UserError(f"{where}: inputs must be whole numbers (tokens), got {inputs.dtype}.")
    outside = inputs[(inputs < 0) | (inputs >= task.vocab_size)]
    if outside.size:
        raise UserError(
            f"{where}: tokens must be from 0 to vocab_size - 1 = {task.vocab_size - 1}, got "
            f"{outside[0]}."
        )
    if inputs.shape[1] > task.length:
        raise UserError(
            f"{where}: an example has {inputs.shape[1]} tokens, and length is {task.length}."
        )


def _check_targets(task: Task, targets: np.ndarray, weights: np.ndarray, where: str) -> None:
    if not np.issubdtype(targets.dtype, np.integer):
        raise UserError(f"{where}: targets must be whole numbers, got {targets.dtype}.")
    scored = targets[weights > 0]
    outside = scored[(scored < 0) | (scored >= task.answers)]
    if outside.size:
        hint = " To leave a position out, give it the weight 0." if outside[0] < 0 else ""
        raise UserError(
            f"{where}: targets of scored positions must be from 0 to {task.answers - 1}, got "
            f"{outside[0]}.{hint}"
        )


def check_baselines(name: str, baselines: Mapping[str, float]) -> None:
    """Raises a UserError unless the scores of trivial predictors are finite numbers."""
    for baseline, value in baselines.items():
        try:
            is_finite = math.isfinite(value)
        except TypeError:
            is_finite = False
        if not is_finite:
            raise UserError(
                f"{name}.baselines: {baseline} must be a finite number, got {value!r:.60}."
            )


def check_deterministic(task: Task) -> None:
    """Raises a UserError if the task draws other examples from the same keys.

    Its code is traced twice, because what it reads while it is traced, such as the time or a
    generator of NumPy, stays constant in a compiled program. Nothing is compiled unless the two
    programs differ.
    """

    def draw(key: jax.Array) -> Batch:
        return jax.vmap(lambda i: task.example(jax.random.fold_in(key, i), i))(
            np.arange(CHECKED_DRAWS, dtype=np.int32)
        )

    def traced() -> tuple[str, list]:
        program = jax.make_jaxpr(lambda key: draw(key))(jax.random.key(0))
        return str(program.jaxpr), [np.asarray(x).tobytes() for x in program.consts]

    once, again = traced(), traced()
    if once == again and "callback" not in once[0]:
        return
    first, second = (jax.jit(lambda key: draw(key))(jax.random.key(0)) for _ in range(2))
    for x, y in zip(first, second, strict=True):
        if not np.array_equal(x, y, equal_nan=True):
            raise UserError(
                f"{type(task).__name__}.example draws other examples each time it is called with "
                "the same key: use the key for all randomness, and nothing that changes, such as "
                "the time or numpy.random."
            )
