"""The hidden Markov problem of the attention-path figures, and the names of its paths."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.papers.attention_paths import user_problem
from jaxformer.core.errors import check_choice
from jaxformer.data import hidden_markov
from jaxformer.models.path_features import READOUTS
from theory import attention_paths
from theory.attention_paths import multiple_outputs

NAMES = {
    "four_paths": ("good", "a1", "denoising", "a2"),
    "two_paths": ("good", "denoising"),
    "two_paths_uniform": ("good", "denoising"),
}


class Example(NamedTuple):
    """Training and test set after fixed attention; P examples, D paths, n token dimension."""

    attentioned: np.ndarray  # (P, D, n)
    labels: np.ndarray
    attentioned_test: np.ndarray
    labels_test: np.ndarray
    heads: tuple[int, ...]
    names: tuple[str, ...]  # of the paths

    @property
    def is_classes(self) -> bool:
        """Are all labels +1 or -1?"""
        return bool(np.all(np.abs(self.labels_test) == 1))

    def accuracy(self, mean) -> float:
        """Of the signs; of other labels than +1 and -1, 1 - residual over total sum of squares."""
        labels = np.asarray(self.labels_test)
        if self.is_classes:
            return float(np.mean(np.sign(mean) == labels))
        rest, all_ = ((x**2).sum() for x in (labels - mean, labels - labels.mean(0)))
        return float(1 - rest / all_) if all_ else math.nan

    def accuracy_at(self, U, temperature: float) -> float:
        """Accuracy of the Gaussian-process predictor with this U; the GP limit is U = 1."""
        mean, _ = attention_paths.predict_at(
            U, self.attentioned, self.labels, temperature, self.attentioned_test
        )
        return self.accuracy(mean)

    def solve(self, width: float, temperature: float) -> attention_paths.OrderParameter:
        return attention_paths.order_parameter(
            self.attentioned, self.labels, width, temperature, self.heads
        )

    def chance(self) -> float:
        """The accuracy of the best constant answers: of the larger class, or of the mean."""
        means = np.asarray(self.labels_test).mean(0)
        constant = np.where(means < 0, -1.0, 1.0) if self.is_classes else means
        return self.accuracy(np.broadcast_to(constant, self.labels_test.shape))

    def of_one_output(self) -> tuple[np.ndarray, np.ndarray]:
        """(attentioned, labels) with each output an example: as many paths as there are names."""
        m = multiple_outputs.count(self.labels)
        return np.asarray(multiple_outputs.expand(self.attentioned, m)), self.labels.reshape(-1)

    def only(self, *names: str) -> np.ndarray:
        """U = 1 on the diagonal for the named paths and 0 elsewhere."""
        return np.diag([float(name in names) for name in self.names])


class Datasets(NamedTuple):
    """The problems of a figure: one for each seed, or that of a file, all at one temperature."""

    task: dict[str, Any]
    temperature: float
    seed: int
    n_seeds: int

    def examples(self, **change) -> list[Example]:
        """All of them; `change` replaces fields of the task. A file holds one, for any seeds."""
        if "file" in self.task:
            return [example(self.seed, **self.task)]
        return [example(self.seed + i, **self.task | change) for i in range(self.n_seeds)]

    def chance(self, examples: Sequence[Example]) -> float:
        """The accuracy of guessing: 1/2 in the task, whose classes are equal; that of a file."""
        return examples[0].chance() if "file" in self.task else 0.5


def example(seed: int, file: str = "", **task: Any) -> Example:
    """The problem of a file, or the hidden Markov task of a seed."""
    if not file:
        return hidden_markov_example(seed, **task)
    held = user_problem.read(file)
    names = held.pop("names") or path_names(held["heads"])
    if held["labels"].ndim == 2:  # U has a row for each path and output
        m = multiple_outputs.count(held["labels"])
        names = tuple(f"{name}:{c}" for name in names for c in range(1, m + 1))
    return Example(**held, names=names)


def hidden_markov_example(
    seed: int,
    design: Any,
    examples: int,
    test_examples: int,
    length: int,
    features: int,
    sigma_par: float,
    sigma_perp: float,
    hardness: float,
    readout: str,
) -> Example:
    """Data seed `seed`, test data 10000 + seed, random heads 1 + seed."""
    forms = hidden_markov.bilinear_forms(1 + seed, design, length, features)

    def draw(data_seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        tokens, labels = hidden_markov.examples(
            data_seed, count, length, features, sigma_par=sigma_par, sigma_perp=sigma_perp
        )
        return hidden_markov.attentioned_input(tokens, forms, readout, hardness), labels

    heads = tuple(len(form) for form in forms)
    names = NAMES.get(design) if isinstance(design, str) else None
    train, test = draw(seed, examples), draw(10_000 + seed, test_examples)
    return Example(*train, *test, heads, names or path_names(heads))


def check(design: Any, readout: str) -> None:
    """Raises if nobody knows the heads or the readout."""
    hidden_markov.bilinear_forms(1, design, length=2, features=4)
    check_choice("readout", readout, READOUTS)


def over(count: int) -> str:
    """What a figure says of its data sets."""
    return f"{count} data sets; bars: standard errors over them." if count > 1 else "one data set."


def path_names(heads: Sequence[int]) -> tuple[str, ...]:
    """ "11", "12", ..: the heads of each path from 1, h_1 first and slowest."""
    joint = "" if max(heads, default=0) < 10 else "-"
    return tuple(
        joint.join(str(h + 1) for h in path) for path in itertools.product(*map(range, heads))
    )


def correlation(U, i: int, j: int) -> float:
    U = np.asarray(U)
    return float(U[i, j] / np.sqrt(U[i, i] * U[j, j]))
