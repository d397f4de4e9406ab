"""The loop that knows nothing: no model, task or freezing, only a step, its batches and hooks."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.processes import agree

CHUNK = 100  # the most steps in one dispatch
CHUNK_SECONDS = 1.0  # and about the longest, so that logs and kills stay prompt


class Hook(NamedTuple):
    """`call(state, step)` after every `every` steps and at the end; 0: after each dispatch.

    `every` may also be a function: step -> the next step at which to call. A hook that returns True
    ends the run after all hooks of that step have been called.
    """

    every: int | Callable[[int], int]
    call: Callable[..., bool | None]
    at_start: bool = False  # also before the first step

    def after(self, step: int) -> int:
        """The next step at which to call; 0 if that is for the dispatches to say."""
        if callable(self.every):
            return self.every(step)
        return self.every and (step // self.every + 1) * self.every


def fit(
    state,
    step_fn: Callable,
    batch_at: Callable,
    *,
    steps: int,
    record: Callable[[int, dict[str, np.ndarray]], None],
    hooks: Sequence[Hook] = (),
    align: int = 1,
):
    """Trains to `steps` and returns the state.

    `state.step` counts; `batch_at(step)` and `step_fn(state, batch)` are traced together, many
    steps a dispatch. `record(first_step, metrics)` gets every step's metrics. Dispatches end on
    multiples of `align` unless the steps are slow. The processes of a job agree on how many,
    which each would choose by its own clock.
    """
    run = _compiled(step_fn, batch_at)
    done, per_step = int(state.step), 0.0
    # The first dispatch donates its input: the caller's arrays must survive it.
    state = jax.tree.map(jnp.copy, state)
    while done < steps:
        events = [hook.after(done) for hook in hooks]
        n = agree(_dispatch_length(done, [steps, *filter(None, events)], align, per_step))
        started = time.perf_counter()
        state, buffer = run(state, n)
        metrics = {name: np.asarray(values)[:n] for name, values in buffer.items()}
        per_step = (time.perf_counter() - started) / n
        record(done, metrics)
        done += n
        # A list, not a generator: every hook of the step is called, whatever another one says.
        due = [hook for hook, event in zip(hooks, events) if event in (0, done) or done == steps]
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


def _dispatch_length(done: int, events: Sequence[int], align: int, per_step: float) -> int:
    n = min(CHUNK, min(events) - done)
    if per_step:
        n = min(n, max(1, int(CHUNK_SECONDS / per_step)))
    to_boundary = align - done % align
    if n > to_boundary:
        n = to_boundary + (n - to_boundary) // align * align
    return n
