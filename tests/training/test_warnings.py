"""Warnings that training does not print, and runs that are refused before they start."""

import warnings
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxformer
from jaxformer.core.errors import UserError
from jaxformer.tasks.source import Source, batch_positions, check_stream
from jaxformer.training.session import Session
from tests.training.test_step import STANDARD, batch_of, population
from tests.training.tiny import TASK, network


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


def test_a_run_that_would_read_its_stream_twice_is_refused():
    """Positions in the stream are 32-bit numbers, so the 2^32nd example is the first again."""
    options = dict(batch_size=256, progress=False)
    with pytest.raises(UserError, match=r"read more than 4,294,967,296 examples, .* repeats"):
        jaxformer.train(TASK, network(layers=1), steps=2**24 + 1, **options)
    source = Source(TASK, jax.random.key(5), 256, 0, 16, 16)
    check_stream(source, 2**24)  # the last of its examples has the last 32-bit number
    assert int(batch_positions(jnp.asarray(2**24 - 1), 256)[-1]) == 2**32 - 1
