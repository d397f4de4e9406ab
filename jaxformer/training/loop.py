"""The training loop: runs a jitted step over batches and calls callbacks.

It is independent of model, task and freezing.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core import sharding
from jaxformer.runtime.processes import from_process_0
from jaxformer.training.callbacks import EVERY_DISPATCH, Callback, Dispatch

MAX_DISPATCH_STEPS = 100
MAX_DISPATCH_SECONDS = 1.0  # rows are written and signals handled between dispatches


class Feed(Protocol):
    """Batches that the host reads, such as rows of a file on disk."""

    waited: float  # seconds for which `read` had to wait so far

    def steps_left(self, step: int) -> int:
        """Returns the number of steps that one `read` at this step serves."""
        ...

    def read(self, step: int) -> Any:
        """Returns device arrays from which the batches of these steps are made."""
        ...

    def prefetch(self, step: int) -> None:
        """Starts to read the next arrays while the device computes."""
        ...

    def batch(self, rows: Any, step: jax.Array) -> Any:
        """Returns the batch of a step. It is called inside jit."""
        ...


class ComputedFeed:
    """A feed whose batches are a function of the step. Nothing is read.

    Args:
      batch_at: a function of the step and of the arrays in `given`.
      given: arrays, such as seeds, which are arguments of the compiled program. As constants, other
        seeds would need another program.
    """

    waited = 0.0

    def __init__(self, batch_at: Callable, *given: Any):
        self.batch_at, self.given = batch_at, given

    def __call__(self, step: Any) -> Any:
        """Returns the batch of a step."""
        return self.batch_at(step, *self.given)

    def steps_left(self, step: int) -> int:
        return MAX_DISPATCH_STEPS

    def read(self, step: int) -> tuple[Any, ...]:
        # Every process of a job passes the same numbers, not arrays on devices of its own.
        return tuple(np.asarray(array) for array in self.given)

    def prefetch(self, step: int) -> None:
        pass

    def batch(self, rows: Any, step: jax.Array) -> Any:
        return self.batch_at(step, *rows)


def fit(
    state: Any,
    step_fn: Callable,
    batches: Callable | Feed,
    *,
    steps: int,
    callbacks: Sequence[Callback] = (),
    align: int = 1,
    donate: bool = False,
) -> Any:
    """Trains until `state.step` is `steps`, or until a callback ends the run.

    A dispatch is one call of a compiled program that runs many steps. Process 0 chooses their
    number for all processes of a job.

    Args:
      state: the state to start from; `state.step` counts the steps.
      step_fn: step_fn(state, batch) -> (state, metrics).
      batches: a function of the step that can be traced, or a `Feed`.
      steps: the step at which to end.
      callbacks: called after each dispatch in this order (`jaxformer.training.callbacks`).
      align: dispatches end at multiples of this many steps unless the steps are slow.
      donate: whether the memory of `state` is used for the new state. Otherwise it is copied, and
        the caller's arrays stay valid.

    Returns:
      The state after the last step.
    """
    feed: Any = batches if hasattr(batches, "read") else ComputedFeed(batches)  # type: ignore[arg-type]
    run_steps = _compiled(step_fn, feed)
    done, step_seconds = int(state.step), 0.0
    if not donate:  # the first dispatch donates its input
        state = sharding.copy_arrays(state)
    while done < steps:
        next_steps = [callback.next_step(done) for callback in callbacks]
        events = [steps, *(event for event in next_steps if event != EVERY_DISPATCH)]
        n = from_process_0(
            _dispatch_length(done, events, align, step_seconds, feed.steps_left(done))
        )
        started, waited_before = time.perf_counter(), feed.waited
        rows = feed.read(done)
        is_first = not step_seconds
        if is_first and not getattr(jax.config, "jax_disable_jit", False):
            # JAX caches the trace, so the call of run_steps does not trace again.
            program = run_steps.trace(state, n, rows).jaxpr.jaxpr
            for callback in callbacks:
                callback.on_program(program)
        state, buffer = run_steps(state, n, rows)
        feed.prefetch(done)
        metrics = {name: np.asarray(values)[:n] for name, values in buffer.items()}
        seconds = time.perf_counter() - started
        step_seconds = seconds / n
        dispatch = Dispatch(done, n, metrics, seconds, feed.waited - waited_before)
        for callback in callbacks:
            callback.on_dispatch(dispatch)
        done += n
        due = [
            callback
            for callback, event in zip(callbacks, next_steps, strict=True)
            if event in (EVERY_DISPATCH, done) or done == steps
        ]
        # A list, not a generator: all callbacks of the step run before one of them ends training.
        if any([callback.on_step(state, done) for callback in due]):
            break
    return state


def _compiled(step_fn: Callable, feed: Feed) -> Any:
    """Returns run_steps(state, n, rows), which runs n steps; one program serves every n.

    It returns the new state and the metrics, whose first n rows are those of the steps.
    """

    @partial(jax.jit, inline=True)  # the shapes and the loop share one trace
    def one_step(state, rows):
        return step_fn(state, feed.batch(rows, state.step))

    def run_steps(state, n, rows):
        shapes = jax.eval_shape(one_step, state, rows)[1]
        buffer = jax.tree.map(lambda x: jnp.zeros((MAX_DISPATCH_STEPS, *x.shape), x.dtype), shapes)

        def body(i, carry):
            state, buffer = carry
            state, metrics = one_step(state, rows)
            return state, jax.tree.map(lambda b, m: b.at[i].set(m), buffer, metrics)

        return jax.lax.fori_loop(0, n, body, (state, buffer))

    return jax.jit(run_steps, donate_argnums=0)


def _dispatch_length(
    done: int,
    events: Sequence[int],
    align: int,
    step_seconds: float,
    max_steps: int = MAX_DISPATCH_STEPS,
) -> int:
    """Returns the number of steps of the next dispatch.

    It ends at the next event at the latest, at a multiple of `align` if it reaches one, and after
    about MAX_DISPATCH_SECONDS.

    Args:
      done: steps done so far.
      events: later steps at which a dispatch must end.
      align: the interval at whose multiples dispatches end if they can.
      step_seconds: the time of a step; 0 if it is not known yet.
      max_steps: steps for which the feed has batches.
    """
    n = min(MAX_DISPATCH_STEPS, max_steps, min(events) - done)
    if step_seconds:
        n = min(n, max(1, int(MAX_DISPATCH_SECONDS / step_seconds)))
    to_boundary = align - done % align
    if n > to_boundary:
        n = to_boundary + (n - to_boundary) // align * align
    return n
