"""Wrong arguments are one-line errors before anything is compiled."""

import re

import numpy as np
import pytest

from jaxformer.core.errors import UserError
from theory import attention_paths

XI = np.random.default_rng(0).standard_normal((6, 4, 5))
Y = np.array([1.0, 1.0, 1.0, -1.0, -1.0, -1.0])


def solve(attentioned=XI, labels=Y, width=10, temperature=0.01, heads=(2, 2)):
    return attention_paths.order_parameter(attentioned, labels, width, temperature, heads)


def with_entry(value):
    attentioned = XI.copy()
    attentioned[3, 1, 2] = value
    return attentioned


DUPLICATED = np.concatenate([XI, XI[2:3]])


def check_errors(call, cases):
    """Checks the message of each case and lists all cases that fail."""
    failures = []
    for arguments, pattern in cases:
        try:
            call(**arguments)
            failures.append(f"{arguments}: no error")
        except UserError as error:
            if not re.search(pattern, str(error)):
                failures.append(f"{arguments}: {error}")
    assert not failures, "\n".join(failures)


def test_order_parameter():
    cases = [
        ({"labels": np.array([0, 0, 0, 1, 1, 1.0])}, r"\+1 or -1, got 0; .*2 y - 1"),
        ({"labels": Y[:5]}, r"shape \(6,\).*got \(5,\)"),
        ({"heads": (2, 3)}, r"6 = product of heads \(2, 3\).*got \(6, 4, 5\)"),
        ({"heads": (2, 0)}, "heads must be a whole number of at least 1"),
        ({"attentioned": XI[:, 0]}, r"got \(6, 5\)"),
        ({"attentioned": XI[:0], "labels": Y[:0]}, "at least one example"),
        ({"width": 0.5}, "width must be finite and at least 1, got 0.5"),
        ({"width": (10, 10)}, "3 numbers N_1 .. N_3.*got 2"),
        ({"width": np.nan}, "width"),
        ({"temperature": 0}, "above 0, got 0"),
        ({"temperature": -1.0}, "above 0, got -1"),
        ({"temperature": np.inf}, "finite"),
        ({"attentioned": with_entry(np.nan)}, "1 of 6 examples.*number 3"),
        ({"attentioned": with_entry(np.inf)}, "1 of 6 examples.*number 3"),
        (
            {"attentioned": DUPLICATED, "labels": np.append(Y, 1.0), "temperature": 1e-15},
            r"condition number \d.*examples 2 and 6 are duplicates",
        ),
    ]
    check_errors(solve, cases)


def test_duplicates_are_accepted_at_an_ordinary_temperature():
    attention_paths.Sampler.build(DUPLICATED, np.append(Y, 1.0), 10, 0.01, (2, 2), 10, 1)


def test_sample():
    def sample(**changed):
        defaults = {"width": 10, "temperature": 0.1, "draws": 4, "warmup": 4, "chains": 1}
        attention_paths.sample(None, XI, Y, heads=(2, 2), **(defaults | changed))

    cases = [
        ({"method": "colapsed"}, "Did you mean 'collapsed'"),
        ({"chain_method": "serial"}, "sequential, vectorized"),
        ({"draws": 0}, "draws"),
        ({"warmup": -1}, "warmup"),
        ({"chains": 0}, "chains"),
        ({"width": 2.5}, "width must be a whole number"),
        ({"temperature": 0.0}, "above 0"),
    ]
    check_errors(sample, cases)


def test_predictions_and_scores():
    solution = attention_paths.OrderParameter(
        [np.ones(()), np.eye(2), np.eye(4)], np.ones(()), np.zeros(()), 0.1, (2, 2), (5, 5, 5)
    )
    with pytest.raises(UserError, match=r"attentioned_test.*4 = product.*got \(6, 3, 5\)"):
        attention_paths.predict(solution, XI, Y, XI[:, :3])
    with pytest.raises(UserError, match=r"4 = product of heads.*5\), got \(6, 4, 4\)"):
        attention_paths.predict(solution, XI, Y, XI[..., :4])
    with pytest.raises(UserError, match=r"\(6, 6\).*got \(4, 4\)"):
        attention_paths.head_scores(np.eye(4), (2, 3))
    with pytest.raises(UserError, match="no head 2 in layer 1"):
        attention_paths.prune(np.eye(4), (2, 2), 1, 2)


def test_float32_at_a_tiny_temperature_is_an_error():
    xi = np.concatenate([XI, XI[:1]]).astype(np.float32)
    with pytest.raises(UserError, match=r"condition number.*float32"):
        solve(xi, np.append(Y, 1.0), temperature=1e-7)
