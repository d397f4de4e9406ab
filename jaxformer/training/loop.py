"""The loop that knows nothing: no model, task or freezing, only a step, its batches and hooks."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

CHUNK = 100  # the most steps in one dispatch
CHUNK_SECONDS = 1.0  # and about the longest, so that logs and kills stay prompt


class Hook(NamedTuple):
    """`call(state, step)` after every `every` steps and at the end; 0: after each dispatch.

    A hook that returns True ends the run after all hooks of that step have been called.
    """

    every: int
    call: Callable[..., bool | None]


def fit(
    state,
    step_fn: Callable,
    batch_at: Callable,
    *,
    steps: int,
    record: Callable[[int, dict[str, np.ndarray]], None],
    hooks: Sequence[Hook] = (),
    align: int = 1,
    agree: Callable[[int], int] = int,
):
    """Trains to `steps` and returns the state.

    `state.step` counts; `batch_at(step)` and `step_fn(state, batch)` are traced together, many
    steps a dispatch. `record(first_step, metrics)` gets every step's metrics. Dispatches end on
    multiples of `align` unless the steps are slow. `agree` makes the processes of a job dispatch
    the same number of steps, which each would choose by its own clock.
    """
    run = _compiled(step_fn, batch_at)
    done, per_step = int(state.step), 0.0
    # The first dispatch donates its input: the caller's arrays must survive it.
    state = jax.tree.map(jnp.copy, state)
    while done < steps:
        n = agree(_dispatch_length(done, steps, hooks, align, per_step))
        started = time.perf_counter()
        state, buffer = run(state, n)
        metrics = {name: np.asarray(values)[:n] for name, values in buffer.items()}
        per_step = (time.perf_counter() - started) / n
        record(done, metrics)
        done += n
        # A list, not a generator: every hook of the step is called, whatever another one says.
        due = [h for h in hooks if h.every == 0 or done % h.every == 0 or done == steps]
        if any([hook.call(state, done) for hook in due]):
            break
    return state


def _compiled(step_fn, batch_at):
    """run(state, n): n steps, n at most CHUNK and traced, so that one program serves all."""

    def run(state, n):
        metrics_shape = jax.eval_shape(lambda s: step_fn(s, batch_at(s.step))[1], state)
        buffer = jax.tree.map(lambda x: jnp.zeros((CHUNK, *x.shape), x.dtype), metrics_shape)

        def body(i, carry):
            state, buffer = carry
            state, metrics = step_fn(state, batch_at(state.step))
            return state, jax.tree.map(lambda b, m: b.at[i].set(m), buffer, metrics)

        return jax.lax.fori_loop(0, n, body, (state, buffer))

    return jax.jit(run, donate_argnums=0)


def _dispatch_length(done, steps, hooks, align, per_step) -> int:
    events = [steps] + [(done // h.every + 1) * h.every for h in hooks if h.every]
    n = min(CHUNK, min(events) - done)
    if per_step:
        n = min(n, max(1, int(CHUNK_SECONDS / per_step)))
    to_boundary = align - done % align
    if n > to_boundary:
        n = to_boundary + (n - to_boundary) // align * align
    return n
