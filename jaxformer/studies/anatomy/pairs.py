"""Pairs of a clean and a corrupted prompt with the answers that score them.

The score of a pair is the logit of the right answer minus that of the wrong answer at the scored
positions, or the log probability of the right answer if there is no wrong one.

Shapes: B pairs, T tokens of the longest prompt, K scored positions.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.core.errors import UserError, check_range, one_line
from jaxformer.core.settings import DataSettings
from jaxformer.interp.answers import Answers
from jaxformer.interp.prompts import answer_position, first_token, tab_separated
from jaxformer.tasks.language import NextToken
from jaxformer.tasks.source import make_source
from jaxformer.tasks.task import Batch, Task

NO_ANSWER = -1
COLUMNS = "clean, corrupted, right, wrong"


@dataclasses.dataclass(frozen=True)
class PromptPairs:
    """Clean and corrupted prompts, padded on the right, and their answers.

    Attributes:
        clean: the tokens of the clean prompts, (B, T).
        corrupted: the tokens of the corrupted prompts, (B, T).
        lengths: the number of tokens of both prompts of a pair, (B,); padding follows.
        position: the scored positions, (B, K).
        target: the right answer at each scored position, (B, K).
        against: the wrong answer, (B, K), or NO_ANSWER.
        weight: the weight of each scored position in the mean of its pair, (B, K).
        names: a text for each clean prompt.
        tokens: a text for each token of each clean prompt.
    """

    clean: np.ndarray
    corrupted: np.ndarray
    lengths: np.ndarray
    position: np.ndarray
    target: np.ndarray
    against: np.ndarray
    weight: np.ndarray
    names: tuple[str, ...]
    tokens: tuple[tuple[str, ...], ...]

    def __len__(self) -> int:
        return len(self.clean)

    @property
    def unit(self) -> str:
        """The name of the score."""
        has_wrong_answer = (self.against != NO_ANSWER).all()
        return "logit of right - wrong" if has_wrong_answer else "log probability (nats)"

    @property
    def ask_for_next_tokens(self) -> bool:
        """Whether every answer is the next token of its clean prompt, as in a text."""
        is_inside = (self.weight > 0) & (self.position + 1 < self.lengths[:, None])
        following = np.minimum(self.position + 1, self.clean.shape[1] - 1)
        is_next = np.take_along_axis(self.clean, following, 1) == self.target
        return bool(is_inside.any() and is_next[is_inside].all())


def read_pairs(file: str | Path, tokenizer: Any, causal: bool = True) -> PromptPairs:
    """Reads pairs from a text file: clean, tab, corrupted, tab, right, tab, wrong on each line.

    The score is read at the last token of the prompt, or at the mask token if the model is not
    causal, for the first token of each answer. Both prompts of a line must have the same number of
    tokens; different lines may differ in length.

    Args:
        file: the file. The fourth column may be missing on all lines.
        tokenizer: with `encode(text)`, `pieces(text)`, `show(token)` and `mask`.
        causal: whether the model's tokens attend to earlier tokens only.
    """
    encoded = [_encoded(file, *line, tokenizer) for line in _lines(Path(file))]
    if len({wrong == NO_ANSWER for *_, wrong in encoded}) > 1:
        raise UserError(f"{file}: some lines have a wrong answer and some have none.")
    lengths = np.array([len(clean) for _, clean, *_ in encoded])
    names, clean, corrupted, right, wrong = zip(*encoded, strict=True)
    positions = [
        [
            answer_position(prompt, tokenizer, causal, f"{file}, {name!r:.40}")
            for name, prompt in zip(names, prompts, strict=True)
        ]
        for prompts in (clean, corrupted)
    ]
    if positions[0] != positions[1]:
        raise UserError(f"{file}: the two prompts of a line must have their mask at one place.")
    return PromptPairs(
        clean=_padded(clean),
        corrupted=_padded(corrupted),
        lengths=lengths,
        position=np.array(positions[0], np.int32)[:, None],
        target=np.array(right, np.int32)[:, None],
        against=np.array(wrong, np.int32)[:, None],
        weight=np.ones((len(encoded), 1), np.float32),
        names=names,
        tokens=tuple(tuple(map(tokenizer.show, prompt)) for prompt in clean),
    )


def pairs_of_answers(clean: np.ndarray, corrupted: np.ndarray, answers: Answers) -> PromptPairs:
    """The pairs of prompts of one length whose answers are given."""
    position, target, against, weight = map(np.asarray, answers)
    return PromptPairs(
        clean=clean,
        corrupted=corrupted,
        lengths=np.full(len(clean), clean.shape[1]),
        position=position,
        target=target,
        against=against,
        weight=weight,
        names=tuple(f"prompt {i}" for i in range(len(clean))),
        tokens=tuple(tuple(str(token) for token in row) for row in clean),
    )


def pairs_of_task(task: Task, size: int = 64, data: DataSettings | None = None) -> PromptPairs:
    """Returns pairs of examples of a task's test set.

    Args:
        size: the number of examples to draw.
        data: the settings of the run's data. By default the test set is drawn with seed 0.
    """
    check_range("the number of pairs", size, 2)
    if not task.vocab_size:
        raise UserError(f"{type(task).__name__} has vectors as inputs; pairs need tokens.")
    settings = data or DataSettings(seed=0, test_size=size, validation_size=1)
    return pairs_of_examples(task, make_source(task, settings, 1).heldout().test, size)


def pairs_of_examples(task: Task, batch: Batch, size: int = 64) -> PromptPairs:
    """The pairs of a task's examples; the tokens of a text are named by their letters."""
    pairs = pairs_of_batch(batch, size)
    return with_texts(pairs, task) if isinstance(task, NextToken) else pairs


def pairs_of_batch(batch: Batch, size: int = 64) -> PromptPairs:
    """Returns pairs of a clean example and another example as its corrupted prompt.

    Both examples of a pair have the same scored positions, and different tokens. Examples without
    such a partner are left out.

    Args:
        batch: inputs, targets and weights of examples. Positions with a weight are scored.
        size: the number of examples to use.
    """
    inputs, targets, weights = (np.asarray(x)[:size] for x in batch)
    if inputs.ndim != 2 or weights.shape != inputs.shape:
        raise UserError("pairs need examples of tokens with an answer at some of the tokens.")
    clean, partner = _partners(inputs, weights)
    if not len(clean):
        raise UserError(
            f"no two of {len(inputs)} examples have the same scored positions and different "
            "tokens; take more examples."
        )
    scored = weights[clean] > 0
    n_scored = int(scored.sum(1).max())
    # The scored positions come first. Positions with weight 0 fill the rest of each row.
    position = np.argsort(~scored, axis=1, kind="stable")[:, :n_scored]
    tokens = inputs[clean].astype(np.int32)
    target = np.take_along_axis(targets[clean], position, 1).astype(np.int32)
    return PromptPairs(
        clean=tokens,
        corrupted=inputs[partner].astype(np.int32),
        lengths=np.full(len(clean), inputs.shape[1]),
        position=position,
        target=target,
        against=np.full_like(target, NO_ANSWER),
        weight=np.take_along_axis(weights[clean], position, 1).astype(np.float32),
        names=tuple(f"example {i}" for i in clean),
        tokens=tuple(tuple(str(token) for token in row) for row in tokens),
    )


def with_texts(pairs: PromptPairs, task: NextToken) -> PromptPairs:
    """Returns the pairs with `tokens` decoded to texts."""
    decode = task.prepared.tokenizer.decode
    texts = tuple(tuple(decode([int(token)]) for token in row) for row in pairs.clean)
    return dataclasses.replace(pairs, tokens=texts)


def _partners(inputs: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the indices of clean examples and of their corrupted partners.

    The partner is the next example with the same scored positions; the last one gets the first.
    """
    groups: dict[bytes, list[int]] = {}
    for i, row in enumerate(weights > 0):
        if row.any():
            groups.setdefault(row.tobytes(), []).append(i)
    pairs = [
        (i, partner)
        for group in groups.values()
        for i, partner in zip(group, [*group[1:], group[0]], strict=True)
        if (inputs[i] != inputs[partner]).any()
    ]
    index = np.array(sorted(pairs), int).reshape(-1, 2)  # two columns also without pairs
    return index[:, 0], index[:, 1]


def _lines(file: Path) -> list[tuple[int, list[str]]]:
    """Returns (line number, columns) of each pair of prompts."""
    numbered = [
        (number, [column.strip() for column in columns]) for number, columns in tab_separated(file)
    ]
    for number, columns in numbered:
        if len(columns) not in (3, 4) or not all(columns):
            raise UserError(
                f"{file}, line {number}: expected {COLUMNS} with tabs between them, got "
                f"{len(columns)} columns."
            )
    return numbered


def _encoded(
    file: str | Path, number: int, columns: Sequence[str], tokenizer: Any
) -> tuple[str, list[int], list[int], int, int]:
    """Returns the clean text, both prompts' tokens, and the tokens of right and wrong answer."""
    where = f"{file}, line {number}"
    clean, corrupted = (tokenizer.encode(text) for text in columns[:2])
    if len(clean) != len(corrupted):
        raise UserError(
            f"{where}: the clean prompt has {len(clean)} tokens and the corrupted one "
            f"{len(corrupted)}; both must have the same number."
        )
    if not clean or clean == corrupted:
        raise UserError(f"{where}: the two prompts have the same tokens: nothing can be patched.")
    answers = [first_token(tokenizer, text)[0] for text in columns[2:]]
    if len(answers) == 2 and answers[0] == answers[1]:
        raise UserError(
            f"{where}: {one_line(columns[2], 30)!r} and {one_line(columns[3], 30)!r} begin with "
            "the same token; the score would be 0."
        )
    wrong = answers[1] if len(answers) == 2 else NO_ANSWER
    return columns[0], clean, corrupted, answers[0], wrong


def _padded(prompts: Sequence[Sequence[int]]) -> np.ndarray:
    """Returns the prompts as rows; shorter ones are followed by token 0."""
    rows = np.zeros((len(prompts), max(len(prompt) for prompt in prompts)), np.int32)
    for row, prompt in zip(rows, prompts, strict=True):
        row[: len(prompt)] = prompt
    return rows
