"""The reference problems: one of the paper's size, and a tiny one for all other tests."""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from jaxformer.data import hidden_markov

GOLDEN = json.loads((Path(__file__).parents[2] / "reference/attention_paths.json").read_text())


class Example(NamedTuple):
    """A training and a test set with reference numbers."""

    attentioned: np.ndarray
    labels: np.ndarray
    attentioned_test: np.ndarray
    labels_test: np.ndarray
    golden: dict


def build_example(name: str) -> Example:
    settings = GOLDEN[name]["kw"]
    size = {"length": settings.get("T", 30), "features": settings.get("n0", 200)}
    forms = hidden_markov.bilinear_forms(1, **size)
    tokens, labels = hidden_markov.examples(0, settings.get("P", 100), **size)
    test, labels_test = hidden_markov.examples(10_000, settings.get("Pt", 1000), **size)
    xi, xi_test = (hidden_markov.attentioned_input(x, forms) for x in (tokens, test))
    return Example(xi, labels, xi_test, labels_test, GOLDEN[name])


@pytest.fixture(scope="session")
def paper() -> Example:
    return build_example("paper")


@pytest.fixture(scope="session")
def tiny() -> Example:
    return build_example("tiny")
