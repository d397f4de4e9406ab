"""The loop that knows nothing: no model, task or freezing, only a step, its batches and hooks."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core import sharding
from jaxformer.runtime.processes import agree

CHUNK = 100  # the most steps in one dispatch
CHUNK_SECONDS = 1.0  # and about the longest, so that logs and kills stay prompt


class Hook(NamedTuple):
    """`call(state, step)` after every `every` steps and at the end; 0: after each dispatch.

    `every` may also be a function: step -> the next step at which to call, or 0. A hook that
    returns True ends the run after all hooks of that step have been called.
    """

    every: int | Callable[[int], int]
    call: Callable[..., bool | None]
    at_start: bool = False  # also before the first step

    def after(self, step: int) -> int:
        """The next step at which to call; 0 if that is for the dispatches to say."""
        if callable(self.every):
            return self.every(step)
        return self.every and (step // self.every + 1) * self.every


class Feed(Protocol):
    """Batches that are not computed from the step alone: the host brings what they are made of."""

    waited: float  # seconds in which `read` had to be waited for

    def left(self, step: int) -> int:
        """For how many steps what is read at `step` lasts."""
        ...

    def read(self, step: int) -> Any:
        """What the batches of these steps are made of, on the devices."""
        ...

    def ahead(self, step: int) -> None:
        """Begins to read what comes after, beside what is computed now."""
        ...

    def take(self, rows: Any, step: jax.Array) -> Any:
        """Inside jit: the batch of a step."""
        ...


class Drawn:
    """The feed of batches that are a function of the step: nothing is read."""

    waited = 0.0

    def __init__(self, batch_at: Callable):
        self.batch_at = batch_at

    def left(self, step: int) -> int:
        return CHUNK

    def read(self, step: int) -> tuple[()]:
        return ()

    def ahead(self, step: int) -> None:
        pass

    def take(self, rows: Any, step: jax.Array) -> Any:
        return self.batch_at(step)


def fit(
    state,
    step_fn: Callable,
    batches: Callable | Feed,
    *,
    steps: int,
    record: Callable[[int, dict[str, np.ndarray]], None],
    hooks: Sequence[Hook] = (),
    align: int = 1,
    timed: Callable[[int, float, float], None] = lambda steps, seconds, waited: None,
    traced: Callable[[Any], None] = lambda program: None,
):
    """Trains to `steps` and returns the state.

    `state.step` counts; `batches`, a function of the step or a `Feed`, and `step_fn(state, batch)`
    are traced together, many steps a dispatch. `record(first_step, metrics)` gets every step's
    metrics. Dispatches end on multiples of `align` unless the steps are slow. The processes of a
    job agree on how many, which each would choose by its own clock. `timed(steps, seconds, waited)`
    hears how long a dispatch took, and for how much of it there was nothing to compute with;
    `traced(program)` gets the jaxpr, of which a step is the loop's body, before the first one.
    """
    feed: Any = batches if hasattr(batches, "read") else Drawn(batches)  # type: ignore[arg-type]
    run = _compiled(step_fn, feed)
    done, per_step = int(state.step), 0.0
    # The first dispatch donates its input: the caller's arrays must survive it.
    state = sharding.copied(state)
    while done < steps:
        wanted = [hook.after(done) for hook in hooks]
        events = [steps, *filter(None, wanted)]
        n = agree(_dispatch_length(done, events, align, per_step, feed.left(done)))
        started, waited = time.perf_counter(), feed.waited
        rows = feed.read(done)
        if not (per_step or getattr(jax.config, "jax_disable_jit", False)):
            traced(run.trace(state, n, rows).jaxpr.jaxpr)  # kept: the call traces no second time
        state, buffer = run(state, n, rows)
        feed.ahead(done)
        metrics = {name: np.asarray(values)[:n] for name, values in buffer.items()}
        seconds = time.perf_counter() - started
        per_step = seconds / n
        timed(n, seconds, feed.waited - waited)
        record(done, metrics)
        done += n
        # A list, not a generator: every hook of the step is called, whatever another one says.
        due = [hook for hook, event in zip(hooks, wanted) if event in (0, done) or done == steps]
        if any([hook.call(state, done) for hook in due]):
            break
    return state


def _compiled(step_fn, feed: Feed):
    """run(state, n, rows): n steps, n at most CHUNK and traced, so that one program serves all."""

    @partial(jax.jit, inline=True)  # the shapes and the loop need one trace
    def one_step(state, rows):
        return step_fn(state, feed.take(rows, state.step))

    def run(state, n, rows):
        metrics_shape = jax.eval_shape(one_step, state, rows)[1]
        buffer = jax.tree.map(lambda x: jnp.zeros((CHUNK, *x.shape), x.dtype), metrics_shape)

        def body(i, carry):
            state, buffer = carry
            state, metrics = one_step(state, rows)
            return state, jax.tree.map(lambda b, m: b.at[i].set(m), buffer, metrics)

        return jax.lax.fori_loop(0, n, body, (state, buffer))

    return jax.jit(run, donate_argnums=0)


def _dispatch_length(
    done: int, events: Sequence[int], align: int, per_step: float, most: int = CHUNK
) -> int:
    n = min(CHUNK, most, min(events) - done)
    if per_step:
        n = min(n, max(1, int(CHUNK_SECONDS / per_step)))
    to_boundary = align - done % align
    if n > to_boundary:
        n = to_boundary + (n - to_boundary) // align * align
    return n
