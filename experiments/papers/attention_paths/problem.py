"""The problems of the attention-path figures: the hidden Markov task, or data from a file.

P examples, D paths, n token dimension.
"""

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

PATH_NAMES = {  # by design of the task
    "four_paths": ("good", "a1", "denoising", "a2"),
    "two_paths": ("good", "denoising"),
    "two_paths_uniform": ("good", "denoising"),
}


class Example(NamedTuple):
    """A training and a test set after fixed attention."""

    attentioned: np.ndarray  # (P, D, n), sums of tokens weighted along each path
    labels: np.ndarray  # (P,), or (P, outputs)
    attentioned_test: np.ndarray
    labels_test: np.ndarray
    heads: tuple[int, ...]
    names: tuple[str, ...]  # one for each path

    @property
    def has_class_labels(self) -> bool:
        """True if all labels are +1 or -1."""
        return bool(np.all(np.abs(self.labels_test) == 1))

    def accuracy(self, mean) -> float:
        """Returns the accuracy of predictions `mean` on the test set.

        It is the share of correct signs, or R^2 if the labels are not all +1 and -1.
        """
        labels = np.asarray(self.labels_test)
        if self.has_class_labels:
            return float(np.mean(np.sign(mean) == labels))
        residual = ((labels - mean) ** 2).sum()
        total = ((labels - labels.mean(0)) ** 2).sum()
        return float(1 - residual / total) if total else math.nan

    def accuracy_at(self, U, temperature: float) -> float:
        """Returns the accuracy of the Gaussian-process predictor with this U.

        The identity U is the GP limit.
        """
        mean, _ = attention_paths.predict_at(
            U, self.attentioned, self.labels, temperature, self.attentioned_test
        )
        return self.accuracy(mean)

    def solve(self, width: float, temperature: float) -> attention_paths.OrderParameter:
        """Returns the theory's order parameter of networks of this width."""
        return attention_paths.order_parameter(
            self.attentioned, self.labels, width, temperature, self.heads
        )

    def chance(self) -> float:
        """Returns the accuracy of the best constant answer: the larger class, or the mean label."""
        means = np.asarray(self.labels_test).mean(0)
        constant = np.where(means < 0, -1.0, 1.0) if self.has_class_labels else means
        return self.accuracy(np.broadcast_to(constant, self.labels_test.shape))

    def of_one_output(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns (attentioned, labels) with each output as a separate example.

        The number of paths then equals the number of names.
        """
        m = multiple_outputs.count(self.labels)
        return np.asarray(multiple_outputs.expand(self.attentioned, m)), self.labels.reshape(-1)

    def only(self, *names: str) -> np.ndarray:
        """Returns U with 1 on the diagonal for the named paths and 0 elsewhere."""
        return np.diag([float(name in names) for name in self.names])


class Datasets(NamedTuple):
    """The problems of a figure at one temperature: one for each seed, or one from a file."""

    task: dict[str, Any]
    temperature: float
    seed: int
    n_seeds: int

    def examples(self, **change) -> list[Example]:
        """Returns all problems, with fields of the task replaced by `change`.

        A file has one problem, whatever the number of seeds.
        """
        if "file" in self.task:
            return [example(self.seed, **self.task)]
        return [example(self.seed + i, **self.task | change) for i in range(self.n_seeds)]

    def chance(self, examples: Sequence[Example]) -> float:
        """Returns the accuracy of guessing: 1/2 in the task, whose classes are equally frequent."""
        return examples[0].chance() if "file" in self.task else 0.5


def example(seed: int, file: str = "", **task: Any) -> Example:
    """Returns the problem of a file, or the hidden Markov task of a seed."""
    if not file:
        return hidden_markov_example(seed, **task)
    fields = user_problem.read(file)
    names = fields.pop("names") or path_names(fields["heads"])
    if fields["labels"].ndim == 2:  # U has a row for each path and output
        m = multiple_outputs.count(fields["labels"])
        names = tuple(f"{name}:{c}" for name in names for c in range(1, m + 1))
    return Example(**fields, names=names)


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
    """Returns the hidden Markov task. `jaxformer.data.hidden_markov` explains its arguments.

    Training data have the seed `seed`, test data 10000 + seed, random heads 1 + seed.
    """
    forms = hidden_markov.bilinear_forms(1 + seed, design, length, features)

    def draw(data_seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        tokens, labels = hidden_markov.examples(
            data_seed, count, length, features, sigma_par=sigma_par, sigma_perp=sigma_perp
        )
        return hidden_markov.attentioned_input(tokens, forms, readout, hardness), labels

    heads = tuple(len(form) for form in forms)
    names = PATH_NAMES.get(design) if isinstance(design, str) else None
    train, test = draw(seed, examples), draw(10_000 + seed, test_examples)
    return Example(*train, *test, heads, names or path_names(heads))


def check(design: Any, readout: str) -> None:
    """Raises if the heads of the design or the readout are unknown."""
    hidden_markov.bilinear_forms(1, design, length=2, features=4)
    check_choice("readout", readout, READOUTS)


def data_sets_phrase(count: int) -> str:
    """Returns a figure's phrase about its data sets."""
    return f"{count} data sets; bars: standard errors over them." if count > 1 else "one data set."


def path_names(heads: Sequence[int]) -> tuple[str, ...]:
    """Returns the name of each path: its heads counted from 1, layer 1 first ("11", "12", ..).

    The head of layer 1 changes slowest.
    """
    separator = "" if max(heads, default=0) < 10 else "-"
    return tuple(
        separator.join(str(h + 1) for h in path) for path in itertools.product(*map(range, heads))
    )


def correlation(U, i: int, j: int) -> float:
    """Returns U_ij / sqrt(U_ii U_jj) of two paths."""
    U = np.asarray(U)
    return float(U[i, j] / np.sqrt(U[i, i] * U[j, j]))
