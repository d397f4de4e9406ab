"""Who else hears of a run: TensorBoard, wandb, the profiler. metrics.jsonl stays the truth.

    --track=tensorboard,wandb       every row goes there too; RUN/tensorboard, RUN/wandb
    --profile=START:STEPS           a trace of these steps: RUN/profile, which xprof shows

A listener that fails is named and heard no more; it never ends a run.
"""

import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from jaxformer.core.errors import UserError, check_choice

# name -> (its package, what to install)
PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb"}


class Listener:
    """Hears the rows of a run as they are written, and its result."""

    def rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Rows that were just written."""

    def result(self, result: Mapping[str, Any]) -> None:
        """The content of result.json."""

    def after(self, step: int) -> int:
        """The next step at which to call `at`; 0: only at the end of training."""
        return 0

    def at(self, state: Any, step: int) -> None:
        """Between two dispatches; also before the first step."""

    def close(self) -> None:
        """The run ends, for good or for now."""


class TensorBoard(Listener):
    """Event files of all rows; steps that a resumed run writes again replace the old ones."""

    def __init__(self, folder: Path, config: Mapping[str, Any]):
        self.folder = folder / "tensorboard"
        self.writer: Any = None

    def rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows and self.writer is None:
            from tensorboardX import SummaryWriter

            options = {"purge_step": rows[0]["step"], "flush_secs": 10}
            self.writer = SummaryWriter(str(self.folder), **options)
        for row in rows:
            for name, value in numbers(row):
                self.writer.add_scalar(name, value, row["step"])

    def result(self, result: Mapping[str, Any]) -> None:
        if self.writer is not None:
            for name, mean in result["metrics"].items():
                value = _mean(mean)
                if value is not None:
                    self.writer.add_scalar(f"test/{name}", value, result.get("steps") or 0)

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


class WandB(Listener):
    """A run of wandb, offline unless WANDB_MODE says otherwise; `wandb sync` uploads it."""

    def __init__(self, folder: Path, config: Mapping[str, Any]):
        self.folder, self.config = folder, config
        self.run: Any = None

    def rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows and self.run is None:
            import wandb

            self.run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "jaxformer"),
                name=self.folder.name,
                id=re.sub(r"[^a-zA-Z0-9_-]", "-", self.folder.name),
                resume="allow",
                dir=str(self.folder),
                config=dict(self.config),
                mode=os.environ.get("WANDB_MODE", "offline"),  # type: ignore[arg-type]
                settings=wandb.Settings(silent=True, console="off"),
            )
            self.run.define_metric("*", step_metric="step")
        for row in rows:
            self.run.log({"step": row["step"], **dict(numbers(row))})

    def result(self, result: Mapping[str, Any]) -> None:
        if self.run is not None:
            values = {f"test/{name}": _mean(mean) for name, mean in result["metrics"].items()}
            self.run.summary.update(values)

    def close(self) -> None:
        if self.run is not None:
            self.run.finish(quiet=True)


class Profile(Listener):
    """A trace of the steps START to START + STEPS."""

    def __init__(self, folder: Path, start: int, steps: int):
        self.folder, self.start, self.end = folder / "profile", start, start + steps
        self.is_on, self.is_done = False, False

    def after(self, step: int) -> int:
        if self.is_done:
            return 0
        return next((event for event in (self.start, self.end) if event > step), 0)

    def at(self, state: Any, step: int) -> None:
        if self.is_on and step >= self.end:
            self._stop(state, step)
        elif step == self.start and not self.is_done:
            jax.block_until_ready(state)
            jax.profiler.start_trace(str(self.folder))
            self.is_on = True

    def close(self) -> None:
        if self.is_on:
            self._stop(None, None)
        elif not self.is_done:
            print(f"no profile: step {self.start} was not passed in this session", file=sys.stderr)

    def _stop(self, state: Any, step: int | None) -> None:
        jax.block_until_ready(state)
        self.is_on, self.is_done = False, True
        jax.profiler.stop_trace()
        until = f"{self.start} to {step}" if step else f"from {self.start}"
        print(f"a profile of the steps {until} is in {self.folder}", file=sys.stderr)


SINKS: dict[str, type] = {"tensorboard": TensorBoard, "wandb": WandB}


def sinks(text: str) -> list[str]:
    """The names in --track=A,B; each must be installed."""
    names = [name for name in text.split(",") if name]
    for name in names:
        check_choice("sink of --track", name, SINKS)
        if importlib.util.find_spec(PACKAGES[name]) is None:
            raise UserError(
                f"--track={name} needs {PACKAGES[name]}: pip install 'jaxformer[track]'."
            )
    return names


def profiled(text: str) -> tuple[int, int] | None:
    """(START, STEPS) of --profile=START:STEPS."""
    if not text:
        return None
    match = re.fullmatch(r"(\d{1,9}):(\d{1,9})", text, re.ASCII)
    if match is None or int(match[2]) < 1:
        raise UserError(f"--profile must be START:STEPS such as 100:20, got {text!r:.100}.")
    return int(match[1]), int(match[2])


def numbers(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """ "loss/member_1", "signal/cosine/member_1/layer_0" and their values, of all but the step.

    Where there is one member, or one layer, its number is left out.
    """
    for name, value in row.items():
        if name != "step":
            yield from _numbers(name, value)


def _numbers(
    name: str, value: Any, counted: Sequence[str] = ("member", "layer")
) -> Iterator[tuple[str, float]]:
    """`counted` says what the entries of a list are, and those of a list in it."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _numbers(f"{name}/{key}", part)
    elif hasattr(value, "tolist"):
        yield from _numbers(name, value.tolist())
    elif isinstance(value, list | tuple):
        what, *inner = counted
        for i, part in enumerate(value):
            yield from _numbers(f"{name}/{what}_{i}" if len(value) > 1 else name, part, inner)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield name, float(value)


def _mean(value: Any) -> float | None:
    return value.get("mean") if isinstance(value, Mapping) else getattr(value, "mean", None)
