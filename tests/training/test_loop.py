"""The loop runs every step once and its callbacks on time, whatever the length of a dispatch."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.training import loop
from jaxformer.training.callbacks import AT_END, EVERY_DISPATCH, Callback, Every
from jaxformer.training.loop import fit
from tests.training.recorder import Recorder


class State(NamedTuple):
    step: jax.Array
    total: jax.Array


def step(state, batch):
    return State(state.step + 1, state.total + batch), {"batch": batch}


def batch_at(step):
    return jnp.float32(step) ** 2


def start(step=0):
    return State(jnp.int32(step), jnp.float32(sum(i**2 for i in range(step))))


def run(steps, callbacks=(), align=1, begin=0):
    recorder = Recorder()
    with jax.transfer_guard_device_to_host("allow"):
        callbacks = [recorder, *callbacks]
        state = fit(start(begin), step, batch_at, steps=steps, callbacks=callbacks, align=align)
    return state, recorder


def test_every_step_is_recorded_once_and_in_order():
    state, recorder = run(257)
    assert recorder.steps == list(range(257))
    assert [float(b) for b in recorder.metrics["batch"]] == [float(i**2) for i in range(257)]
    assert int(state.step) == 257 and float(state.total) == sum(i**2 for i in range(257))


def test_callbacks_are_called_at_multiples_and_at_the_end():
    calls = []
    run(25, [Every(10, lambda s, n: calls.append((n, int(s.step))))])
    assert calls == [(10, 10), (20, 20), (25, 25)]


def test_a_callback_can_end_the_run_and_the_others_are_still_called():
    calls = []
    callbacks = [Every(5, lambda s, n: n == 10), Every(5, lambda s, n: calls.append(n))]
    state, _ = run(50, callbacks)
    assert int(state.step) == 10 and calls == [5, 10]


def test_a_resumed_run_continues_at_its_step():
    whole, _ = run(40)
    part, recorder = run(40, begin=13)
    assert recorder.steps[0] == 13 and float(part.total) == float(whole.total)


def test_the_callers_state_survives_donation():
    state = start()
    fit(state, step, batch_at, steps=3)
    assert float(state.total) == 0


def test_dispatches_end_on_boundaries_unless_the_steps_are_slow():
    def length(done, step_seconds, *events):
        return loop._dispatch_length(done, [1000, *events], align=10, step_seconds=step_seconds)

    assert length(0, 0) == 100 and length(7, 0) == 93
    assert length(0, 1 / 25) == 20
    assert length(0, 0.4) == length(8, 0.4) == 2
    assert length(0, 0, 30) == 30


class AtSteps(Callback):
    """Records the steps at which it is called: those in `steps`, then `otherwise`."""

    def __init__(self, steps, otherwise):
        self.steps, self.otherwise, self.called = steps, otherwise, []

    def next_step(self, step):
        return next((s for s in self.steps if s > step), self.otherwise)

    def on_step(self, state, step):
        self.called.append(step)


def test_a_callback_may_name_its_steps():
    at_steps, at_end = AtSteps([0, 2, 3, 11], AT_END), AtSteps([], AT_END)
    each_dispatch = AtSteps([], EVERY_DISPATCH)
    run(30, [at_steps, at_end, each_dispatch])
    assert at_steps.called == each_dispatch.called == [2, 3, 11, 30] and at_end.called == [30]


def test_dispatch_length_does_not_change_the_numbers(monkeypatch):
    whole, _ = run(30)
    monkeypatch.setattr(loop, "MAX_DISPATCH_STEPS", 7)
    again, _ = run(30)
    np.testing.assert_array_equal(whole.total, again.total)


def test_the_step_is_traced_once_a_dispatch_program():
    """Tracing happens twice: for the shapes of the metrics, and for the program."""
    traced = chex.assert_max_traces(step, n=2)
    state = fit(start(), traced, batch_at, steps=257, align=10)
    assert int(state.step) == 257
