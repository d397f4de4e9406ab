"""GSM8K with k-shot chain of thought, whole and cut (Table 2): greedy answers and their accuracy.

The files are GSM8K's own, lines of {"question", "answer"}; the first k of the training file are the
shots, their calculator marks <<..>> taken out. An answer counts if the number after "####", or else
the last number before the next question, is the one of the file. Answers are kept in the cache as
they are given, so that a run that was stopped goes on.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.papers import plots
from experiments.papers.associations import published
from experiments.papers.associations.cutting import Rows
from experiments.papers.outcome import Outcome
from jaxformer import surgery
from jaxformer.build import DTYPES
from jaxformer.core.errors import NotFiniteError, UserError, check_choice
from jaxformer.models.pretrained.generate import NOT_FINITE, greedy
from jaxformer.training.metrics import over_seeds

# For trying things out without the files: not GSM8K.
TOYS = tuple(
    {"question": f"Ann has {a} apples and Tom has {b}. How many?", "answer": f"So #### {a + b}"}
    for a in range(2, 7)
    for b in range(2, 4)
)
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
    """Accuracy of the whole and of the cut model, and their difference, paired by question."""
    asked, examples = read(test)[: questions or None], _examples(train, shots)
    about = {
        "source": source,
        "revision": revision,
        "files": published.files_of(source, revision),
        "texts": fingerprint([*examples, *asked]),
        "matrix": matrix,
        "fraction": fraction,
        "new_tokens": new_tokens,
        "dtype": dtype,
    }
    rows = Rows(published.cache_folder(about), about)
    done = {(row["which"], row["question"]): row for row in rows.read()}
    with jax.enable_x64(False):
        model, params, words = published.open_model(source, revision, 0, dtype)
        for which in ("whole", "cut"):
            open_ = [i for i in range(len(asked)) if (which, i) not in done]
            if not open_:
                continue
            weights = params if which == "whole" else surgery.laser(params, matrix, fraction)
            for start in range(0, len(open_), at_once):
                some = open_[start : start + at_once]
                texts = [prompt(examples, asked[i]["question"]) for i in some]
                for i, said in zip(
                    some, answers(model, weights, words, texts, new_tokens, at_once)
                ):
                    right = is_right(said, asked[i]["answer"])
                    done[which, i] = {"which": which, "question": i, "right": right, "said": said}
                    rows.append(done[which, i])
    right = {
        which: np.array([done[which, i]["right"] for i in range(len(asked))], float)
        for which in ("whole", "cut")
    }
    metrics = {
        "accuracy": over_seeds(right["whole"]),
        "accuracy_cut": over_seeds(right["cut"]),
        "accuracy_gain": over_seeds(right["cut"] - right["whole"]),
    }
    return Outcome({f"right/{which}": values for which, values in right.items()}, metrics)


def check_gsm8k(
    source: str, train: str, test: str, shots: int, matrix: str, fraction: float, dtype: str
) -> None:
    """Raises for what the measurement would refuse, as far as it is known before it."""
    check_choice("dtype", dtype, DTYPES)
    read(test)
    _examples(train, shots)
    surgery.check_fraction(fraction)
    published.check_matrix(source, matrix)


def draw_gsm8k(arrays, shots: int, matrix: str):
    figure, (axis,) = plots.row(1, (plots.COLUMN, 1.8))
    right = {which: arrays[f"right/{which}"] for which in ("whole", "cut")}
    for place, values in enumerate(right.values()):
        plots.means(axis, [place], values[:, None], fmt="o", color=plots.COLOURS[place])
    axis.set_xticks((0, 1), [*right])
    axis.set(ylabel="accuracy", xlim=(-0.5, 1.5))
    whole, cut = (values.mean() for values in right.values())
    plots.headed(
        figure,
        f"{shots} shots: {100 * whole:.1f} % right, {100 * cut:.1f} % with {matrix} cut",
        f"{len(right['cut'])} questions; bars: standard errors over them. block_0 is layer 1.",
    )
    return figure


def _examples(train: str, shots: int) -> list[dict[str, str]]:
    """The shots."""
    examples = read(train)[:shots]
    if len(examples) < shots:
        raise UserError(f"{train or 'the toys'} has {len(examples)} examples, got shots={shots}.")
    return examples


def read(file: str) -> list[dict[str, str]]:
    """Questions and answers of a file; the toys if there is none."""
    if not file:
        return list(TOYS)
    found = []
    if not Path(file).is_file():
        raise UserError(f"no file {file}: download GSM8K's train.jsonl and test.jsonl.")
    with open(file, encoding="utf-8", errors="replace") as lines:
        for place, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                found.append({"question": str(row["question"]), "answer": str(row["answer"])})
            except (ValueError, KeyError, TypeError):
                raise UserError(
                    f'{file}, line {place}: expected {{"question": .., "answer": ..}}.'
                ) from None
    return found


def fingerprint(rows: Sequence[dict[str, str]]) -> str:
    """Of shots and questions: answers to others are not gone on with."""
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]


def prompt(examples: Sequence[dict[str, str]], question: str) -> str:
    """Shots, then the question."""
    parts = [
        f"Question: {e['question']}\nAnswer: {re.sub('<<.*?>>', '', e['answer'])}\n\n"
        for e in examples
    ]
    return "".join(parts) + f"Question: {question}\nAnswer:"


def answers(
    model: Any, params: Any, words: Any, texts: list[str], new_tokens: int, at_once: int
) -> list[str]:
    """Greedy continuations up to the next question. Lengths are rounded up and the batch is filled,
    so that few programs are compiled. Raises if the logits of any token are not finite."""
    ids = [words.encode(text) for text in texts]
    length = 64 * -(-max(map(len, ids)) // 64)
    tokens = np.zeros((at_once, length), np.int32)
    real = np.zeros((at_once, length), bool)
    real[:, -1] = True
    for row, seen, found in zip(tokens, real, ids):
        row[length - len(found) :] = found
        seen[length - len(found) :] = True
    said = np.asarray(_program(model, new_tokens)(params, jnp.asarray(tokens), jnp.asarray(real)))
    said = said[: len(texts)]
    if (said == NOT_FINITE).any():
        raise NotFiniteError(
            "expected finite logits, got nan or infinity: there is no likeliest token. "
            "Try --config.figure.dtype=float32, then check the weights."
        )
    return [words.decode(row.tolist()).split("Question:")[0] for row in said]


_PROGRAMS: dict[Any, Any] = {}


def _program(model: Any, new_tokens: int) -> Any:
    if (model, new_tokens) not in _PROGRAMS:
        _PROGRAMS[model, new_tokens] = jax.jit(
            lambda params, tokens, real: greedy(model, params, tokens, new_tokens, real)
        )
    return _PROGRAMS[model, new_tokens]


def is_right(said: str, answer: str) -> bool:
    """The same number."""
    return number(said) is not None and number(said) == number(answer)


def number(text: str) -> float | None:
    """The one after "####", or the last one."""
    marked = re.search(rf"####\s*\$?({NUMBER})", text)
    found = [marked.group(1)] if marked else re.findall(NUMBER, text)
    return float(found[-1].replace(",", "")) if found else None
