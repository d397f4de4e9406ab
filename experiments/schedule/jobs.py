"""Jobs: runs of configs, each with a folder, a log and an outcome."""

import contextlib
import os
import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.cli import flags
from experiments.cli.recipe_table import RECIPES
from experiments.ledger.record import run_name
from jaxformer import build
from jaxformer.io.file_lock import try_lock
from jaxformer.io.run_folder import config_hash

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOG_TAIL_BYTES = 4000


class Job(NamedTuple):
    """One run: the arguments of run.py, and a name for messages."""

    name: str
    config: str  # "configs/mixit/retrieval.py:variant=mixit,scale=small"
    overrides: Mapping[str, str]  # as on the command line
    workdir: Path
    seconds: float = 0.0  # the estimated time
    resumes: bool = True  # whether a stopped run continues from its last checkpoint
    record: bool = False  # whether the result is copied into results/
    restart: bool = False  # whether the files in the folder are deleted first
    extra_flags: tuple[str, ...] = ()  # flags of run.py that change no result, such as --track
    command: tuple[str, ...] = ()  # another program with its arguments, in place of run.py

    def command_line(self, program: Sequence[str]) -> list[str]:
        """Returns the program with its arguments.

        Args:
            program: the command that starts run.py.
        """
        return [*self.command] or [*program, *self.arguments()]

    def arguments(self) -> list[str]:
        """Returns the command-line arguments of run.py."""
        return [
            f"--config={self.config}",
            *(f"--config.{name}={text}" for name, text in self.overrides.items()),
            f"--workdir={self.workdir}",
            *(["--record"] if self.record else []),
            *self.extra_flags,
        ]

    def log(self) -> Path:
        return self.workdir.with_name(f"{self.workdir.name}.log")

    def is_finished(self) -> bool:
        return (self.workdir / "result.json").exists()

    def is_started(self) -> bool:
        return (self.workdir / "config.json").exists()

    def is_locked(self) -> bool:
        """Returns whether a process holds the lock of the folder."""
        try:
            with open(self.workdir / ".lock") as lock:
                return not try_lock(lock, shared=True)
        except OSError:  # no folder yet, or an unreadable one, which the run will report
            return False

    def claim_log(self, append: bool = False) -> Any:
        """Opens and locks the log, so that only one launcher starts the job.

        The lock lasts until the launcher and the run have closed the log.

        Args:
            append: whether the text of earlier starts stays in the log.

        Returns:
            The open log, or None if another launcher or run has the job.
        """
        self.workdir.parent.mkdir(parents=True, exist_ok=True)
        log = open(self.log(), "ab")  # noqa: SIM115 (open while the job runs)
        is_claimed = True
        with contextlib.suppress(OSError):  # a file system without locks; then the job is claimed
            is_claimed = try_lock(log)
        if not is_claimed or self.is_locked():
            log.close()
            return None
        if not append:
            log.truncate(0)
        return log

    def log_tail(self) -> str:
        """Returns the end of the log; "" without a log."""
        try:
            with open(self.log(), "rb") as log:
                log.seek(max(0, os.path.getsize(self.log()) - LOG_TAIL_BYTES))
                return log.read().decode(errors="replace")
        except OSError:
            return ""

    def progress(self) -> tuple[int, int] | None:
        """Returns the last (step, number of steps) in the log, or None."""
        steps = re.findall(r"step (\d+)/(\d+)", self.log_tail())
        return (int(steps[-1][0]), int(steps[-1][1])) if steps else None

    def last_message(self, exit_code: int) -> str:
        """Returns the last error line of the log, or else its last line.

        A negative exit code is the signal that killed the run. The message then names it.
        """
        if exit_code < 0:
            hint = " (out of memory?)" if exit_code == -signal.SIGKILL else ""
            return f"killed by signal {-exit_code}{hint}"
        lines = [line for line in self.log_tail().splitlines() if line.strip()]
        errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        return (errors or lines or ["it printed nothing"])[-1][:500]


class Outcome(NamedTuple):
    """The end of a job."""

    job: Job
    code: int  # the exit code of the process
    seconds: float
    message: str  # the error line of a job that failed
    by_other_launcher: bool = False  # whether another launcher runs or ran the job

    @property
    def stopped(self) -> bool:
        """Whether a signal ended the job, so that a later start can continue it."""
        # -n: signal n killed the process. 128 + n: a run that handled signal n has exited.
        return self.code in {code for n in STOP_SIGNALS for code in (-n, 128 + n)}


def make_job(
    name: str, config: str, overrides: Mapping[str, str], root: Path, **options: Any
) -> Job:
    """Returns the job of a config in its own folder below `root`.

    Raises:
        UserError: if the config or an override is wrong.
    """
    values = config_dict(config, overrides)
    workdir = root / run_name(values, config_hash(build.config_identity(values)))
    resumes = RECIPES[values["recipe"]].resumes
    return Job(name, config, overrides, workdir, resumes=resumes, **options)


def config_dict(config: str, overrides: Mapping[str, str]) -> dict[str, Any]:
    """Returns a config with its overrides as nested dicts."""
    return flags.to_dict(flags.load_with_overrides(config, overrides))
