"""The progress line of a run, its stopwatch, and the signals that stop it."""

import functools
import os
import signal
import sys
import time
from collections.abc import Mapping
from types import FrameType
from typing import Any

import jax

from jaxformer.core.text_format import duration


class StatusLine:
    """A status line. A terminal or notebook shows the newest text, a pipe receives all texts.

    Args:
      screen_period: seconds between two updates in a terminal or notebook.
      pipe_period: seconds between two lines in a pipe.
    """

    def __init__(self, screen_period: float = 0.2, pipe_period: float = 10.0) -> None:
        self.handle: Any = None  # updates the output of a notebook cell
        self.is_open = False  # whether the cursor of the terminal is still on the line
        self.is_terminal = sys.stderr.isatty()
        self.is_notebook = in_notebook()
        self.period = screen_period if self.is_terminal or self.is_notebook else pipe_period
        self.last_update = -self.period

    def is_due(self) -> bool:
        """Returns whether the period since the last update has passed."""
        return time.monotonic() - self.last_update >= self.period

    def show(self, text: str) -> None:
        """Replaces the line, or prints a new one in a pipe."""
        self.last_update = time.monotonic()
        if self.is_notebook:
            self._show_in_notebook(text)
        elif self.is_terminal:
            width = os.get_terminal_size(sys.stderr.fileno()).columns - 1
            sys.stderr.write(f"\r\x1b[K{text[:width]}")
            self.is_open = True
        else:
            sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def clear(self) -> None:
        """Empties the line of a terminal, so that other output can be printed there."""
        self.close("\r\x1b[K")

    def close(self, ending: str = "\n") -> None:
        """Ends the line of a terminal, so that the next output begins a new line."""
        if self.is_open:
            sys.stderr.write(ending)
            sys.stderr.flush()
        self.is_open = False

    def _show_in_notebook(self, text: str) -> None:
        from IPython.display import Pretty, display

        if self.handle is None:
            self.handle = display(Pretty(text), display_id=True)
        else:
            self.handle.update(Pretty(text))


class Progress:
    """The progress line of a training: step, numbers and the remaining time.

    Args:
      steps: the last step.
      start: the first step; in a resumed run, the step of its checkpoint.
      shown: whether anything is printed.
    """

    def __init__(self, steps: int, start: int, shown: bool = True):
        self.steps, self.start, self.text = steps, start, ""
        self.began = time.monotonic()
        # The last step of the first dispatch, and when it ended. A dispatch is a call of the
        # compiled program, which runs several steps.
        self.first_dispatch: tuple[int, float] | None = None
        self.line = StatusLine() if shown else None
        if self.line and start < steps:
            self.line.show(f"step {start}/{steps}  compiling")

    def show(self, step: int, note: str = "", **numbers: float) -> None:
        """Shows a step with its numbers and a note, when the line is due."""
        now = time.monotonic()
        self.first_dispatch = self.first_dispatch or (step, now)
        parts = [f"step {step}/{self.steps}"]
        parts += [f"{name} {value:.4g}" for name, value in numbers.items()]
        self.text = "  ".join(filter(None, [*parts, note]))
        if self.line and self.line.is_due():
            first_step, first_time = self.first_dispatch
            text = self.text
            if step > first_step:
                seconds_per_step = (now - first_time) / (step - first_step)
                text += f"  about {duration(seconds_per_step * (self.steps - step))} left"
            self.line.show(text)

    def close(self, reason: str) -> None:
        """Shows the last line: the step, why the run ends, and the time it took."""
        if self.line and self.text:
            spent = duration(time.monotonic() - self.began)
            self.line.show(f"{self.text}  {reason}, {spent}")
            self.line.close()


class Interrupt:
    """Turns the first Ctrl-C or SIGTERM into a request to stop; the second one stops at once.

    In a job of submitit the signal SUBMITIT_PREEMPT_SIGNAL is such a request too, and stays one if
    it is repeated.

    Attributes:
      signal: the signal that requested the stop, or 0.
    """

    def __init__(self) -> None:
        self.signal = 0
        self.preemption_signal = preemption_signal(os.environ)
        self._previous_handlers: dict[int, Any] = {}

    def __enter__(self) -> "Interrupt":
        preemption = [self.preemption_signal] if self.preemption_signal else []
        for number in (signal.SIGINT, signal.SIGTERM, *preemption):
            try:
                self._previous_handlers[number] = signal.signal(number, self._receive)
            except ValueError:  # only the main thread may set handlers
                break
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if number == self.preemption_signal:
            self.signal = self.signal or signal.SIGTERM
            return
        if self.signal and not in_notebook():
            os._exit(128 + number)
        if self.signal:
            raise KeyboardInterrupt
        self.signal = number
        print("\nstopping after this dispatch; press again to stop at once", file=sys.stderr)


def preemption_signal(environment: Mapping[str, str]) -> int:
    """Returns the signal that a submitit job receives before its time limit; 0 outside of a job."""
    name = environment.get("SUBMITIT_PREEMPT_SIGNAL", "")
    if not (name or "SUBMITIT_EXECUTOR" in environment):
        return 0
    return int(getattr(signal, f"SIG{name or 'USR2'}", 0))


class Stopwatch:
    """Measures the seconds of a run over all its sessions.

    "compile" is the time of compiling, "run" the remaining time, "cpu" the processor time.

    Attributes:
      before: the seconds of earlier sessions, which a resumed run sets.
    """

    def __init__(self) -> None:
        self.before = {"compile": 0.0, "run": 0.0, "cpu": 0.0}
        self.began, self.began_cpu = time.monotonic(), time.process_time()
        self.began_compile = _compile_timer().seconds

    def seconds(self) -> dict[str, float]:
        """Returns {"compile", "run", "cpu"} so far."""
        compiling = _compile_timer().seconds - self.began_compile
        now = {
            "compile": compiling,
            "run": time.monotonic() - self.began - compiling,
            "cpu": time.process_time() - self.began_cpu,
        }
        return {name: round(self.before[name] + now[name], 2) for name in now}


class _CompileTimer:
    """Seconds that this process has spent compiling since the first stopwatch."""

    def __init__(self) -> None:
        self.seconds = 0.0
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, duration_secs: float, **_: str | int) -> None:
        if event.startswith("/jax/core/compile/"):
            self.seconds += duration_secs


@functools.cache
def _compile_timer() -> _CompileTimer:
    """Returns the single listener of this process; JAX never removes a listener."""
    return _CompileTimer()


def in_notebook() -> bool:
    """Returns whether a Jupyter kernel can display output."""
    ipython = sys.modules.get("IPython")
    shell = getattr(ipython, "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")
