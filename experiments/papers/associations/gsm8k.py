"""Accuracy of greedy answers to GSM8K, with k-shot chain of thought (Table 2).

The model answers twice: whole, and with one weight matrix cut to a low rank. The files are GSM8K's
own: lines of {"question", "answer"}. The shots are the first k examples of the training file,
without their calculator marks <<..>>. The number of an answer is the one after "####", or else the
last one before the next question. An answer is right if its number equals the number in the file.
Answers are cached one by one, so that a stopped run resumes.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.papers import plots
from experiments.papers.associations import published
from experiments.papers.associations.row_file import ROW_FORMAT, RowFile
from experiments.papers.outcome import Figure, Outcome
from jaxformer import surgery
from jaxformer.core.config_fields import DTYPES
from jaxformer.core.errors import NotFiniteError, UserError, check_choice
from jaxformer.interp.generation import generate
from jaxformer.models.sampling import NOT_FINITE
from jaxformer.training.metrics import over_seeds

# Stands in for GSM8K's files in tests and first runs.
TOYS = tuple(
    {"question": f"Ann has {a} apples and Tom has {b}. How many?", "answer": f"So #### {a + b}"}
    for a in range(2, 7)
    for b in range(2, 4)
)
VERSIONS = ("whole", "cut")
PADDED_TO = 64  # prompts are padded to a multiple of this length
NUMBER = r"-?\d[\d,]*(?:\.\d+)?"


def measure_gsm8k(
    source: str,
    revision: str,
    train: str,
    test: str,
    shots: int,
    questions: int,
    matrix: str,
    fraction: float,
    new_tokens: int,
    at_once: int,
    dtype: str,
) -> Outcome:
    """Measures the accuracy of the full and of the cut model, and their difference by question.

    Args:
      source: A published model, as in `published.measure_published`.
      revision: Its revision, "" for the only one.
      train: GSM8K's training file, from which the shots are taken; "" for the toys.
      test: GSM8K's test file; "" for the toys.
      shots: The number of solved examples in a prompt.
      questions: The number of test questions, or 0 for all.
      matrix: A pattern of the matrices to cut.
      fraction: The share of their rank to keep.
      new_tokens: The maximal length of an answer.
      at_once: Questions in one batch.
      dtype: The dtype of the parameters.
    """
    tests = read(test)[: questions or None]
    examples = _shots(train, shots)
    settings = {
        "source": source,
        "revision": revision,
        "files": published.files_of(source, revision),
        "texts": fingerprint([*examples, *tests]),
        "matrix": matrix,
        "fraction": fraction,
        "new_tokens": new_tokens,
        "dtype": dtype,
        **ROW_FORMAT,  # rows of another format are not read
    }
    row_file = RowFile(published.cache_folder(settings), settings)
    done = {(row["which"], row["question"]): row for row in row_file.read()}
    with jax.enable_x64(False):
        model, params, tokenizer = published.open_model(source, revision, 0, dtype)
        for which in VERSIONS:
            missing = [i for i in range(len(tests)) if (which, i) not in done]
            if not missing:
                continue
            weights = params if which == "whole" else surgery.laser(params, matrix, fraction)
            for start in range(0, len(missing), at_once):
                batch = missing[start : start + at_once]
                texts = [prompt(examples, tests[i]["question"]) for i in batch]
                model_answers = answers(model, weights, tokenizer, texts, new_tokens, at_once)
                for i, answer in zip(batch, model_answers):
                    right = is_right(answer, tests[i]["answer"])
                    row = {"which": which, "question": i, "right": right, "said": answer}
                    done[which, i] = row
                    row_file.append(row)
    right_by_version = {
        which: np.array([done[which, i]["right"] for i in range(len(tests))], float)
        for which in VERSIONS
    }
    # Each question is a sample, as a seed is elsewhere.
    metrics = {
        "accuracy": over_seeds(right_by_version["whole"]),
        "accuracy_cut": over_seeds(right_by_version["cut"]),
        "accuracy_gain": over_seeds(right_by_version["cut"] - right_by_version["whole"]),
    }
    arrays = {f"right/{which}": values for which, values in right_by_version.items()}
    return Outcome(arrays, metrics)


def check_gsm8k(
    source: str, train: str, test: str, shots: int, matrix: str, fraction: float, dtype: str
) -> None:
    """Raises if the measurement would refuse its settings; downloads nothing."""
    check_choice("dtype", dtype, DTYPES)
    read(test)
    _shots(train, shots)
    surgery.check_fraction(fraction)
    published.check_matrix(source, matrix)
    if not (train and test) and not source.startswith(published.TINY):
        raise UserError(
            "GSM8K needs its two files: --config.figure.train=train.jsonl and "
            "--config.figure.test=test.jsonl of github.com/openai/grade-school-math."
        )


def draw_gsm8k(arrays, shots: int, matrix: str):
    figure, (axis,) = plots.row(1, (plots.COLUMN, 1.8))
    right = {which: arrays[f"right/{which}"] for which in VERSIONS}
    for x, values in enumerate(right.values()):
        plots.means(axis, [x], values[:, None], fmt="o", color=plots.COLOURS[x])
    axis.set_xticks((0, 1), [*right])
    axis.set(ylabel="accuracy", xlim=(-0.5, 1.5))
    whole, cut = (values.mean() for values in right.values())
    plots.add_finding(
        figure,
        f"{shots} shots: {100 * whole:.1f} % right, {100 * cut:.1f} % with {matrix} cut",
        f"{len(right['cut'])} questions; bars: standard errors over them. block_0 is layer 1.",
    )
    return figure


def _shots(train: str, shots: int) -> list[dict[str, str]]:
    examples = read(train)[:shots]
    if len(examples) < shots:
        raise UserError(f"{train or 'the toys'} has {len(examples)} examples, got shots={shots}.")
    return examples


def read(file: str) -> list[dict[str, str]]:
    """Reads questions and answers from a file; "" stands for the toys."""
    if not file:
        return list(TOYS)
    if not Path(file).is_file():
        raise UserError(f"no file {file}: download GSM8K's train.jsonl and test.jsonl.")
    rows = []
    with open(file, encoding="utf-8", errors="replace") as lines:
        for line_number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                rows.append({"question": str(row["question"]), "answer": str(row["answer"])})
            except (ValueError, KeyError, TypeError):
                raise UserError(
                    f'{file}, line {line_number}: expected {{"question": .., "answer": ..}}.'
                ) from None
    return rows


def fingerprint(rows: Sequence[dict[str, str]]) -> str:
    """Returns a hash of shots and questions, so that only answers to the same texts are reused."""
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]


def prompt(shots: Sequence[dict[str, str]], question: str) -> str:
    """Returns the prompt of a question: the shots, then the question."""
    parts = [
        f"Question: {row['question']}\nAnswer: {re.sub('<<.*?>>', '', row['answer'])}\n\n"
        for row in shots
    ]
    return "".join(parts) + f"Question: {question}\nAnswer:"


def answers(
    model: Any, params: Any, tokenizer: Any, texts: list[str], new_tokens: int, batch_size: int
) -> list[str]:
    """Returns the greedy continuation of each text, up to the next question.

    Texts are padded on the left to a rounded length, and empty rows fill the batch. This way only a
    few programs are compiled. Raises if the logits of any token are not finite.
    """
    ids = [tokenizer.encode(text) for text in texts]
    length = PADDED_TO * -(-max(map(len, ids)) // PADDED_TO)
    tokens_BxT = np.zeros((batch_size, length), np.int32)
    is_token_BxT = np.zeros((batch_size, length), bool)
    is_token_BxT[:, -1] = True  # an empty row also needs a position that it can attend to
    for row, is_token, text_ids in zip(tokens_BxT, is_token_BxT, ids):
        row[length - len(text_ids) :] = text_ids
        is_token[length - len(text_ids) :] = True
    generated = generate(model, params, tokens_BxT, new=new_tokens, real=is_token_BxT)
    new_BxN = np.asarray(generated.tokens)[: len(texts)]
    if (new_BxN == NOT_FINITE).any():
        raise NotFiniteError(
            "expected finite logits, got nan or infinity: there is no likeliest token. "
            "Try --config.figure.dtype=float32, then check the weights."
        )
    return [tokenizer.decode(row.tolist()).split("Question:")[0] for row in new_BxN]


def is_right(given: str, answer: str) -> bool:
    """Returns whether two answers have the same number."""
    return number(given) is not None and number(given) == number(answer)


def number(text: str) -> float | None:
    """Returns the number after "####", or else the last number; None if there is no number."""
    marked = re.search(rf"####\s*\$?({NUMBER})", text)
    numbers = [marked.group(1)] if marked else re.findall(NUMBER, text)
    return float(numbers[-1].replace(",", "")) if numbers else None


GSM8K = Figure(measure=measure_gsm8k, draw=draw_gsm8k, check=check_gsm8k)
