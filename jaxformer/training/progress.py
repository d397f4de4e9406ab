"""How a person watches a run: a progress line with an estimate, and a clean way to stop it."""

import os
import signal
import sys
import time
from types import FrameType

import jax


class Progress:
    """One line that says step, metrics and the time that is left."""

    def __init__(self, steps: int, start: int):
        self.steps, self.first, self.began, self.printed = steps, start, time.monotonic(), 0.0
        self.live = sys.stderr.isatty()
        # A log file gets a line now and then, a terminal a line that moves.
        self.period = 0.2 if self.live else 10.0

    def show(self, step: int, note: str = "", **numbers: float) -> None:
        now = time.monotonic()
        if now - self.printed < self.period and step < self.steps:
            return
        self.printed = now
        text = "  ".join([*(f"{name} {value:.4g}" for name, value in numbers.items()), note])
        left = (now - self.began) / max(step - self.first, 1) * (self.steps - step)
        line = f"step {step}/{self.steps}  {text}  about {clock(left)} left at most"
        if self.live:
            sys.stderr.write(f"\r\x1b[K{line}")
        else:
            sys.stderr.write(line + "\n")
        sys.stderr.flush()

        if self.live and step >= self.steps:
            sys.stderr.write("\n")


class Interrupt:
    """Turns the first Ctrl-C or SIGTERM into a request to stop; the second one stops at once."""

    def __init__(self) -> None:
        self.signal = 0

    def __enter__(self) -> "Interrupt":
        self._before = {s: signal.signal(s, self._note) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal:
            os._exit(128 + number)
        self.signal = number
        print("\nstopping after this dispatch; once more to stop at once", file=sys.stderr)


class Timer:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self.began = time.monotonic()

    def seconds(self) -> float:
        return time.monotonic() - self.began


class Stopwatch:
    """Seconds of a run: compiling, everything else, and processor time, over all its sessions."""

    def __init__(self) -> None:
        self.before = {"compile": 0.0, "run": 0.0, "cpu": 0.0}
        self.wall, self.cpu, self.compiling = Timer(), time.process_time(), 0.0
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def add(self, seconds: dict[str, float]) -> None:
        """What earlier sessions of the run took."""
        self.before = seconds

    def seconds(self) -> dict[str, float]:
        now = {
            "compile": self.compiling,
            "run": self.wall.seconds() - self.compiling,
            "cpu": time.process_time() - self.cpu,
        }
        return {name: round(self.before[name] + now[name], 2) for name in now}

    def _listen(self, event: str, duration_secs: float, **_: str | int) -> None:
        if event.startswith("/jax/core/compile/"):
            self.compiling += duration_secs


def clock(seconds: float) -> str:
    """ "3 s", "2 min 5 s", "1 h 20 min"."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"
