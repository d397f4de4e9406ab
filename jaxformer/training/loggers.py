"""Loggers of a run: TensorBoard, wandb and the profiler. metrics.jsonl keeps all rows.

    --track=tensorboard,wandb   copies every row to RUN/tensorboard, RUN/wandb
    --profile=START:STEPS       traces STEPS steps from START on to RUN/profile, for xprof

A logger that raises is reported once and disabled. It never stops training.
"""

import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from jaxformer.core.errors import UserError, check_choice, one_line
from jaxformer.training.callbacks import AT_END, Callback

PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb"}


class Logger(Callback):
    """A callback that also receives the rows and the result of a run as they are written."""

    def on_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Receives rows of metrics.jsonl."""

    def on_result(self, result: Mapping[str, Any]) -> None:
        """Receives the content of result.json."""

    def close(self) -> None:
        """Runs when the run ends or is stopped."""


class Loggers(Logger):
    """A logger that calls all loggers of a run. One that raises is reported once and disabled.

    Only on_step, on_rows, on_result and close reach the loggers.
    """

    at_start = True  # the training loop calls on_step also before the first step

    def __init__(self, loggers: Sequence[Logger] = ()):
        self.active = list(loggers)

    def next_step(self, step: int) -> int:
        return min((logger.next_step(step) for logger in self.active), default=AT_END)

    def on_step(self, state: Any, step: int) -> None:
        self._call_all("on_step", state, step)

    def on_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._call_all("on_rows", rows)

    def on_result(self, result: Mapping[str, Any]) -> None:
        self._call_all("on_result", result)

    def close(self) -> None:
        self._call_all("close")

    def _call_all(self, method: str, *arguments: Any) -> None:
        for logger in [*self.active]:
            try:
                getattr(logger, method)(*arguments)
            except Exception as error:
                self.active.remove(logger)
                name = type(logger).__name__
                print(f"warning: {name} is disabled: {one_line(error, 300)}", file=sys.stderr)


class TensorBoard(Logger):
    """Event files of all rows. Steps that a resumed run writes again replace the old ones."""

    def __init__(self, folder: Path, config: Mapping[str, Any]):
        self.folder = folder / "tensorboard"
        self.writer: Any = None

    def on_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows and self.writer is None:
            from tensorboardX import SummaryWriter

            options = {"purge_step": rows[0]["step"], "flush_secs": 10}
            self.writer = SummaryWriter(str(self.folder), **options)
        for row in rows:
            for name, value in numbers(row):
                self.writer.add_scalar(name, value, row["step"])

    def on_result(self, result: Mapping[str, Any]) -> None:
        if self.writer is not None:
            for name, metric in result["metrics"].items():
                value = _mean(metric)
                if value is not None:
                    self.writer.add_scalar(f"test/{name}", value, result.get("steps") or 0)

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


class WandB(Logger):
    """A run of wandb, offline unless WANDB_MODE is set; `wandb sync` uploads it."""

    def __init__(self, folder: Path, config: Mapping[str, Any]):
        self.folder, self.config = folder, config
        self.run: Any = None

    def on_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows and self.run is None:
            self.run = self._start()
        for row in rows:
            self._log(dict(numbers(row)), row["step"])

    def _start(self) -> Any:
        import wandb

        run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "jaxformer"),
            name=self.folder.name,
            id=re.sub(r"[^a-zA-Z0-9_-]", "-", self.folder.name),
            resume="allow",
            dir=str(self.folder),
            config=dict(self.config),
            mode=os.environ.get("WANDB_MODE", "offline"),  # type: ignore[arg-type]
            settings=wandb.Settings(silent=True, console="off"),
        )
        run.define_metric("*", step_metric="step")
        return run

    def _log(self, values: Mapping[str, float], step: int) -> None:
        self.run.log({"step": step, **values})

    def on_result(self, result: Mapping[str, Any]) -> None:
        if self.run is not None:
            values = {f"test/{name}": _mean(mean) for name, mean in result["metrics"].items()}
            self.run.summary.update(values)

    def close(self) -> None:
        if self.run is not None:
            self.run.finish(quiet=True)


class Profile(Logger):
    """A trace of the steps `start` to `start + steps`."""

    def __init__(self, folder: Path, start: int, steps: int):
        self.folder, self.start, self.end = folder / "profile", start, start + steps
        self.is_tracing, self.is_done = False, False

    def next_step(self, step: int) -> int:
        if self.is_done:
            return AT_END
        return next((event for event in (self.start, self.end) if event > step), AT_END)

    def on_step(self, state: Any, step: int) -> None:
        if self.is_tracing and step >= self.end:
            self._stop(state, step)
        elif step == self.start and not self.is_done:
            jax.block_until_ready(state)
            jax.profiler.start_trace(str(self.folder))
            self.is_tracing = True

    def close(self) -> None:
        if self.is_tracing:
            self._stop(None, None)
        elif not self.is_done:
            print(f"no profile: step {self.start} was not passed in this session", file=sys.stderr)

    def _stop(self, state: Any, step: int | None) -> None:
        jax.block_until_ready(state)
        self.is_tracing, self.is_done = False, True
        jax.profiler.stop_trace()
        steps = f"{self.start} to {step}" if step else f"from {self.start}"
        print(f"a profile of the steps {steps} is in {self.folder}", file=sys.stderr)


TRACKERS: dict[str, Callable[[Path, Mapping[str, Any]], Logger]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
}


def parse_track(text: str) -> list[str]:
    """Returns the names in --track=A,B; raises if one is unknown or not installed."""
    names = [name for name in text.split(",") if name]
    for name in names:
        check_choice("logger of --track", name, TRACKERS)
        if importlib.util.find_spec(PACKAGES[name]) is None:
            raise UserError(
                f"--track={name} needs {PACKAGES[name]}: pip install 'jaxformer[track]'."
            )
    return names


def parse_profile(text: str) -> tuple[int, int] | None:
    """Returns (START, STEPS) of --profile=START:STEPS, or None for an empty text."""
    if not text:
        return None
    match = re.fullmatch(r"(\d{1,9}):(\d{1,9})", text, re.ASCII)
    if match is None or int(match[2]) < 1:
        raise UserError(f"--profile must be START:STEPS such as 100:20, got {text!r:.100}.")
    return int(match[1]), int(match[2])


def numbers(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yields ("signal/cosine/member_1/layer_0", value) for each number of a row except its step.

    The index of a single member, and of a single layer, is left out of the name.
    """
    for name, value in row.items():
        if name != "step":
            yield from _numbers(name, value)


def _numbers(
    name: str, value: Any, list_axes: Sequence[str] = ("member", "layer")
) -> Iterator[tuple[str, float]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _numbers(f"{name}/{key}", part)
    elif hasattr(value, "tolist"):
        yield from _numbers(name, value.tolist())
    elif isinstance(value, list | tuple):
        axis, *inner_axes = list_axes
        for i, part in enumerate(value):
            yield from _numbers(f"{name}/{axis}_{i}" if len(value) > 1 else name, part, inner_axes)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield name, float(value)


def _mean(value: Any) -> float | None:
    return value.get("mean") if isinstance(value, Mapping) else getattr(value, "mean", None)
