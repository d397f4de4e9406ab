"""Training warns of nothing that a user cannot change."""

import warnings
from types import SimpleNamespace

import jax
import numpy as np

from jaxformer.training.session import Session
from tests.training.test_step import STANDARD, batch_of, population


def test_a_step_is_traced_where_every_warning_is_an_error():
    state, step, _ = population(STANDARD, [1e-2], layers=1)
    batch = batch_of(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # as PYTHONWARNINGS=error does
        jax.make_jaxpr(step)(state, batch)


def test_a_row_of_a_member_close_to_divergence_is_no_warning_of_numpy():
    """The sum of two finite numbers is infinite in float32, and so is their mean."""
    rows = []
    session = SimpleNamespace(
        unwritten=[],
        settings=SimpleNamespace(log_every=2, steps=2),
        workdir=SimpleNamespace(append=rows.extend),
    )
    losses = np.array([[1, 3e38], [2, 3e38]], np.float32)
    Session.record(session, 0, {"loss": losses})  # pytest makes errors of warnings
    assert [row["step"] for row in rows] == [2]
    np.testing.assert_array_equal(rows[0]["loss"], [1.5, np.inf])
