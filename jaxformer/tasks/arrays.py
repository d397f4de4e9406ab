"""Your own examples, as arrays in memory.

    task = Arrays(inputs, targets)             inputs (N, T), targets (N, T) or (N,)
    task = Arrays(inputs)                      each token predicts the next one
    task = Arrays(inputs, targets, parts=["train", "test", ..])

The arrays are finite: each epoch visits every training example once in a new order, which depends
on seed and step only, so that a run resumes with the same bits. `from_dataset` in
`jaxformer.tasks.datasets` reads rows of data-set libraries. For texts larger than memory use
`jaxformer prepare`.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from jaxformer.core.errors import UserError, check_range, check_type, one_line, unknown
from jaxformer.models.model import MAX_SIZES
from jaxformer.tasks import trivial
from jaxformer.tasks.disk import DiskTask, scramble
from jaxformer.tasks.task import TEST, TOKEN_SCORES, TRAIN, VALIDATION, Batch, Declared

PARTS = {"train": TRAIN, "validation": VALIDATION, "test": TEST}
NOT_SCORED = -100  # the target that PyTorch and transformers leave out of the loss
N_FITTING_EXAMPLES = 40_000  # for the trivial predictors
# Sums of weights are float32: none may overflow, or vanish beside the 1e-9 that guards a division.
WEIGHTS = (1e-6, 1e30)


@dataclass(frozen=True, init=False, repr=False)
class Arrays(DiskTask):
    """Examples that are given as arrays.

    Args:
        inputs: tokens (N, T), whole numbers.
        targets: the right token at each position, (N, T), or one answer for each example, (N,),
            which is predicted at the last position. A target of -100 is not scored. None: each
            token predicts the next one.
        weights: the weight of each target in the loss, of its shape; 0 is not scored. Default 1.
        parts: for each example "train", "validation" or "test". A part that does not occur is
            taken from "train". Default: all parts are taken from all examples.
        vocab_size: the number of tokens. Default: the largest token or target and 1.
        validation: the share of examples that choose the learning rate.
        test: the share of examples on which a run is scored.

    A hash of the inputs chooses the examples of a part, so that their order does not matter and
    equal inputs are in one part.

    Example:
        inputs = np.random.default_rng(0).integers(0, 10, (5000, 3))
        task = Arrays(inputs, inputs.sum(1) % 10)
    """

    fingerprint: str  # of all numbers and parts: a run with other data is not resumed
    vocab: int
    tokens: int
    scored: int  # the largest number of scored positions of an example
    examples: tuple[int, int, int]  # in training, validation and test

    def __init__(
        self,
        inputs: npt.ArrayLike,
        targets: npt.ArrayLike | None = None,
        weights: npt.ArrayLike | None = None,
        *,
        parts: Sequence[str] | None = None,
        vocab_size: int | None = None,
        validation: float = 0.1,
        test: float = 0.1,
    ):
        inputs_NxT = _tokens("inputs", inputs, (2,))
        n = len(inputs_NxT)
        if targets is None:
            if inputs_NxT.shape[1] < 2:
                raise UserError("inputs have one token each: without targets there is no next one.")
            inputs_NxT, given = inputs_NxT[:, :-1], inputs_NxT[:, 1:]
        else:
            given = _tokens("targets", targets, (1, 2), lowest=NOT_SCORED)
        if len(given) != n or (given.ndim == 2 and given.shape != inputs_NxT.shape):
            raise UserError(
                f"targets must have the shape {inputs_NxT.shape} of inputs, or ({n},) for one "
                f"answer each; got {given.shape}."
            )
        targets_NxT, weights_NxT = _at_positions(given, _weights(weights, given), inputs_NxT.shape)
        largest = int(max(inputs_NxT.max(), targets_NxT.max()))
        vocab_size = largest + 1 if vocab_size is None else vocab_size
        check_type("vocab_size", vocab_size, int)
        check_range("vocab_size", vocab_size, 1, MAX_SIZES["vocab_size"])
        if largest >= vocab_size:
            raise UserError(
                f"tokens and targets must be from 0 to vocab_size - 1 = {vocab_size - 1}, got "
                f"{largest}."
            )
        part_N = _parts(inputs_NxT, parts, validation, test)
        rows = np.concatenate([inputs_NxT, targets_NxT, weights_NxT.view(np.int32)], 1)
        digest = hashlib.sha256(np.ascontiguousarray(rows).data)
        digest.update(part_N.astype(np.int8).tobytes())
        values = {
            "fingerprint": digest.hexdigest()[:12],
            "vocab": int(vocab_size),
            "tokens": inputs_NxT.shape[1],
            "scored": int((weights_NxT > 0).sum(1).max()),
            "examples": tuple(int((part_N == part).sum()) for part in PARTS.values()),
            "_rows_of": {part: rows[part_N == part] for part in PARTS.values()},
            "_is_split_by_hash": parts is None,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        total = sum(self.examples)
        return f"Arrays({total:,} examples of {self.tokens} tokens, {self.vocab:,} symbols)"

    @property
    def vocab_size(self) -> int:
        return self.vocab

    @property
    def length(self) -> int:
        return self.tokens

    @property
    def n_scored(self) -> int:
        return self.scored

    @property
    def chosen_by(self) -> str:
        return "accuracy" if self.scored == 1 else "loss"

    @property
    def remark(self) -> str:
        train, validation, test = (f"{n:,}" for n in self.examples)
        return f"{train} examples to train, {validation} to validate, {test} to test"

    def count(self, part: int) -> int:
        return len(self._rows_of[part])  # type: ignore[attr-defined]

    def rows(self, part: int, index_B: np.ndarray, shift_B: np.ndarray) -> np.ndarray:
        del shift_B  # a row is one example in every epoch
        return self._rows_of[part][index_B]  # type: ignore[attr-defined]

    @property
    def has_disjoint_parts(self) -> bool:
        return self._is_split_by_hash  # type: ignore[attr-defined]

    def is_among(self, batch: Batch, index_N: np.ndarray) -> np.ndarray:
        train_NxT = self._rows_of[TRAIN][index_N, : self.tokens]  # type: ignore[attr-defined]
        return np.isin(_hashes(np.asarray(batch.inputs)), _hashes(train_NxT))

    def batch(self, rows_BxR: jax.Array, keys_B: jax.Array) -> Batch:
        del keys_B
        inputs, targets, weights = (
            rows_BxR[:, i * self.tokens : (i + 1) * self.tokens] for i in range(3)
        )
        return Batch(inputs, targets, jax.lax.bitcast_convert_type(weights, np.float32))

    def baselines(self, batch: Batch) -> dict[str, float]:
        """Returns scores of frequencies and of bigrams, counted on the training part.

        `best_after_token` and `bigram_loss` know the input token at the scored position only.
        """
        batch = jax.device_get(batch)
        fit = _fitting_examples(self)
        bigram = trivial.Bigram(fit, self.vocab)
        return {
            "best_constant": trivial.best_constant(fit, batch),
            "best_after_token": bigram.accuracy(batch),
            "unigram_loss": trivial.unigram_loss(fit, batch),
            "bigram_loss": bigram.loss(batch),
        }

    @property
    def declared(self) -> Declared:
        names = ("best_constant", "best_after_token", "unigram_loss", "bigram_loss")
        return Declared(TOKEN_SCORES, names)


@cache
def _fitting_examples(task: Arrays) -> Batch:
    """Evenly spaced training examples as NumPy arrays."""
    count = task.count(TRAIN)
    n = min(count, N_FITTING_EXAMPLES)
    index = np.arange(n) * count // n
    fields: Any = np.split(task.rows(TRAIN, index, index), 3, axis=1)
    weights: Any = np.ascontiguousarray(fields[2]).view(np.float32)
    return Batch(fields[0], fields[1], weights)


def _tokens(name: str, given: npt.ArrayLike, ndims: tuple[int, ...], lowest: int = 0) -> np.ndarray:
    """The given numbers as int32; raises UserError unless they are whole and at least `lowest`."""
    shape = " or ".join({1: "(examples,)", 2: "(examples, tokens)"}[ndim] for ndim in ndims)
    try:
        array = np.asarray(given)
    except ValueError:  # rows of different lengths
        array = np.empty(0, object)
    if array.dtype == object:
        raise UserError(
            f"{name} must be an array {shape} of whole numbers, got objects or rows of different "
            "lengths: pad them to one length, with weight 0 on the padding."
        )
    if array.dtype.kind not in "iub":
        raise UserError(
            f"{name} must be whole numbers (tokens), got {array.dtype}: convert them, as with "
            "astype(int), or encode texts with a tokenizer."
        )
    if array.ndim not in ndims or not array.size:
        raise UserError(f"{name} must have the shape {shape}, got {array.shape}.")
    wrong = array[(array < 0) & (array != lowest)]
    if wrong.size or array.max() >= 2**31:
        worst = wrong[0] if wrong.size else array.max()
        also = f", or {lowest} for a position that is not scored" if lowest else ""
        raise UserError(f"{name} must be from 0 to 2**31 - 1{also}; got {worst}.")
    return array.astype(np.int32)


def _weights(given: npt.ArrayLike | None, targets: np.ndarray) -> np.ndarray:
    weights = np.ones(targets.shape) if given is None else np.asarray(given)
    if weights.shape != targets.shape or weights.dtype.kind not in "iubf":
        raise UserError(
            f"weights must be numbers of the shape {targets.shape} of targets, got "
            f"{weights.dtype}{list(weights.shape)}."
        )
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise UserError("weights must be finite and at least 0.")
    low, high = WEIGHTS
    wrong = weights[(weights > 0) & ((weights < low) | (weights > high))]
    if wrong.size:
        raise UserError(
            f"weights must be 0 or from {low:g} to {high:g}, got {wrong[0]:g}: multiply all by one "
            "number, because only their ratio matters."
        )
    weights = np.where(targets == NOT_SCORED, 0, weights).astype(np.float32)
    if not weights.any():
        raise UserError("all weights are 0, or all targets -100: nothing is scored.")
    return weights


def _at_positions(
    given: np.ndarray, weights: np.ndarray, shape: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Targets and weights (N, T); one answer for each example stands at the last position."""
    targets = np.maximum(given, 0)
    if targets.ndim == 2:
        return targets, weights
    placed = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    for array, last in zip(placed, (targets, weights), strict=True):
        array[:, -1] = last
    return placed


def _parts(
    inputs_NxT: np.ndarray, names: Sequence[str] | None, validation: float, test: float
) -> np.ndarray:
    """The part of each example, (N,)."""
    n = len(inputs_NxT)
    part_N = np.zeros(n, int)
    check_type("validation", validation, float)
    check_type("test", test, float)
    if names is not None:
        is_list = np.ndim(names) == 1
        if not is_list or len(names) != n:
            got = len(names) if is_list else one_line(repr(names), 60)
            raise UserError(f"parts must name the part of each of the {n} examples; got {got}.")
        for name in names:
            if not isinstance(name, str) or name not in PARTS:
                raise unknown("part", str(name), PARTS)
        part_N = np.array([PARTS[name] for name in names])
    shares = {TEST: test, VALIDATION: validation}
    shares = {part: share for part, share in shares.items() if not (part_N == part).any()}
    if not (all(share > 0 for share in shares.values()) and sum(shares.values()) < 1):  # or nan
        raise UserError(
            f"validation and test must be positive with a sum below 1, got {validation:g} and "
            f"{test:g}."
        )
    hash_N = scramble(_hashes(inputs_NxT))
    train = np.unique(hash_N[part_N == TRAIN])
    if len(train) < 1 + len(shares):
        raise UserError(
            f"{len(train)} different training inputs are too few: validation, test and training "
            "need at least one each."
        )
    start = 0
    for part, share in shares.items():
        stop = start + max(1, round(share * len(train)))
        part_N[(part_N == TRAIN) & np.isin(hash_N, train[start:stop])] = part
        start = stop
    return part_N


def _hashes(inputs_NxT: np.ndarray) -> np.ndarray:
    """A 64-bit hash of each row, (N,)."""
    position_T = scramble(np.arange(1, inputs_NxT.shape[1] + 1, dtype=np.uint64))
    return scramble(inputs_NxT.astype(np.uint64) + position_T).sum(1, dtype=np.uint64)
