"""The loop: every step once, hooks on time, dispatches that do not change the numbers."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.training import loop
from jaxformer.training.loop import Hook, fit


class State(NamedTuple):
    step: jax.Array
    total: jax.Array


def step(state, batch):
    return State(state.step + 1, state.total + batch), {"batch": batch}


def batch_at(step):
    return jnp.float32(step) ** 2


def start(step=0):
    return State(jnp.int32(step), jnp.float32(sum(i**2 for i in range(step))))


def run(steps, hooks=(), align=1, begin=0):
    seen = []
    with jax.transfer_guard_device_to_host("allow"):
        state = fit(
            start(begin),
            step,
            batch_at,
            steps=steps,
            record=lambda first, m: seen.extend(zip(range(first, steps), m["batch"], strict=False)),
            hooks=hooks,
            align=align,
        )
    return state, seen


def test_every_step_is_recorded_once_and_in_order():
    state, seen = run(257)
    assert [i for i, _ in seen] == list(range(257))
    assert [float(b) for _, b in seen] == [float(i**2) for i in range(257)]
    assert int(state.step) == 257 and float(state.total) == sum(i**2 for i in range(257))


def test_hooks_are_called_at_multiples_and_at_the_end():
    calls = []
    run(25, [Hook(10, lambda s, n: calls.append((n, int(s.step))))])
    assert calls == [(10, 10), (20, 20), (25, 25)]


def test_a_hook_can_end_the_run_and_the_others_are_still_called():
    calls = []
    hooks = [Hook(5, lambda s, n: n == 10), Hook(5, lambda s, n: calls.append(n))]
    state, _ = run(50, hooks)
    assert int(state.step) == 10 and calls == [5, 10]


def test_a_resumed_run_goes_on_where_it_was():
    whole, _ = run(40)
    part, seen = run(40, begin=13)
    assert seen[0][0] == 13 and float(part.total) == float(whole.total)


def test_the_callers_state_survives_donation():
    state = start()
    fit(state, step, batch_at, steps=3, record=lambda *_: None)
    assert float(state.total) == 0


def test_dispatches_end_on_boundaries_unless_the_steps_are_slow():
    def length(done, per_step, *events):
        return loop._dispatch_length(done, [1000, *events], align=10, per_step=per_step)

    assert length(0, 0) == 100 and length(7, 0) == 93
    assert length(0, 1 / 25) == 20
    assert length(0, 0.4) == length(8, 0.4) == 2
    assert length(0, 0, 30) == 30


def test_a_hook_may_name_its_steps():
    seen = []
    plan = [0, 2, 3, 11]
    chosen = Hook(lambda done: next((s for s in plan if s > done), 30), lambda _, s: seen.append(s))
    run(30, hooks=[chosen])
    assert seen == [2, 3, 11, 30]


def test_dispatch_length_does_not_change_the_numbers(monkeypatch):
    whole, _ = run(30)
    monkeypatch.setattr(loop, "CHUNK", 7)
    again, _ = run(30)
    np.testing.assert_array_equal(whole.total, again.total)


def test_the_step_is_traced_once_a_dispatch_program():
    """Twice in all: once for the shapes of the metrics, once for the program; never again."""
    traced = chex.assert_max_traces(step, n=2)
    state = fit(start(), traced, batch_at, steps=257, record=lambda *_: None, align=10)
    assert int(state.step) == 257
