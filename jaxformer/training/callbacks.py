"""Callbacks: the parts of a run that act between training steps.

Validation, checkpoints, probes, loggers and the signal by layer are callbacks. `loop.fit` calls
each of them in the order of the list; a run calls them as follows:

    on_start(session)                       before the first step
    on_step(state, 0)                       if `at_start`, and only when the run is new
    on_program(program)                     before the first dispatch of a program
    on_dispatch(dispatch)                   after each dispatch, with the metrics of its steps
    on_step(state, step)                    at the steps that `next_step` names, and at the end

A dispatch is one call of a compiled program that runs up to `loop.MAX_DISPATCH_STEPS` steps.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

EVERY_DISPATCH = 0
AT_END = 2**62  # larger than any number of steps


class Dispatch(NamedTuple):
    """The steps of one call of a compiled program."""

    first_step: int  # steps done before it
    steps: int
    metrics: Mapping[str, np.ndarray]  # {name: (steps, members)}
    seconds: float
    waiting_seconds: float  # in which the device waited for data


class Callback:
    """Base class of callbacks. Each method does nothing unless it is overridden."""

    at_start = False  # call on_step before the first step too

    def on_start(self, session: Any) -> None:
        """Receives the session (`training.session.Session`) of the run."""

    def on_program(self, program: Any) -> None:
        """Receives the jaxpr of a dispatch. The body of its loop is one step."""

    def on_dispatch(self, dispatch: Dispatch) -> None:
        """Receives the metrics of the steps of a dispatch, and the time it took."""

    def next_step(self, step: int) -> int:
        """Returns the step, after `step`, at which to call on_step.

        EVERY_DISPATCH calls it after each dispatch, AT_END only after the last step.
        """
        return AT_END

    def on_step(self, state: Any, step: int) -> bool | None:
        """Runs between two dispatches. A true result ends the run after this step's callbacks."""


class Every(Callback):
    """Calls function(state, step) every `interval` steps and at the end of training.

    With the interval 0 it calls the function after each dispatch.
    """

    def __init__(self, interval: int, function: Callable[..., bool | None], at_start: bool = False):
        self.interval, self.function, self.at_start = interval, function, at_start

    def next_step(self, step: int) -> int:
        if self.interval == 0:
            return EVERY_DISPATCH
        return (step // self.interval + 1) * self.interval

    def on_step(self, state: Any, step: int) -> bool | None:
        return self.function(state, step)
