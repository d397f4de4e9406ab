"""A job is one run of a config in a folder of its own: its words, its log, what became of it."""

import contextlib
import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from experiments import recipes
from experiments.cli import flags
from experiments.ledger.record import run_name
from jaxformer import build
from jaxformer.io.file_lock import try_lock
from jaxformer.io.run_folder import config_hash

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Job(NamedTuple):
    """One run: what run.py is told, and what a person calls it."""

    name: str
    config: str  # "configs/mixit/retrieval.py:variant=mixit,scale=small"
    overrides: Mapping[str, str]  # as flags spell them
    workdir: Path
    seconds: float = 0.0  # about
    resumes: bool = True  # when it was stopped it goes on where it was
    record: bool = False
    anew: bool = False  # what is in its folder counts no more
    more: tuple[str, ...] = ()  # flags of run.py that change no number, such as --track

    def words(self) -> list[str]:
        fields = [f"--config.{name}={text}" for name, text in self.overrides.items()]
        record = ["--record"] * self.record
        return [
            f"--config={self.config}",
            *fields,
            f"--workdir={self.workdir}",
            *record,
            *self.more,
        ]

    def log(self) -> Path:
        return self.workdir.with_name(f"{self.workdir.name}.log")

    def is_finished(self) -> bool:
        return (self.workdir / "result.json").exists()

    def is_started(self) -> bool:
        return (self.workdir / "config.json").exists()

    def is_held(self) -> bool:
        """Does a process hold the lock of the folder?"""
        try:
            with open(self.workdir / ".lock") as lock:
                return not try_lock(lock, shared=True)
        except OSError:  # no folder yet, or an unreadable one, which the job will report
            return False

    def claim(self, keep: bool = False) -> Any:
        """The log for the one launcher that may start this job now; None for others.

        It is locked until the launcher and the run that writes it have both closed it. What it
        held is gone unless it is to be kept.
        """
        self.workdir.parent.mkdir(parents=True, exist_ok=True)
        log = open(self.log(), "ab")  # noqa: SIM115 (held while the job runs)
        is_claimed = True
        with contextlib.suppress(OSError):  # no locks here: that of the folder may still help
            is_claimed = try_lock(log)
        if not is_claimed or self.is_held():
            log.close()
            return None
        if not keep:
            log.truncate(0)
        return log

    def tail(self) -> str:
        """The end of the log."""
        try:
            with open(self.log(), "rb") as log:
                log.seek(max(0, os.path.getsize(self.log()) - 4000))
                return log.read().decode(errors="replace")
        except OSError:
            return ""

    def steps(self) -> tuple[int, int] | None:
        """(the step, of how many) that the run says it is at."""
        said = re.findall(r"step (\d+)/(\d+)", self.tail())
        return (int(said[-1][0]), int(said[-1][1])) if said else None

    def last_words(self, code: int) -> str:
        """The error line of the log, or else its last line."""
        if code < 0:
            return f"killed by signal {-code}" + " (out of memory?)" * (code == -signal.SIGKILL)
        lines = [line for line in self.tail().splitlines() if line.strip()]
        errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        return (errors or lines or ["it said nothing"])[-1][:500]


class Outcome(NamedTuple):
    job: Job
    code: int  # of the process
    seconds: float
    message: str  # the last word of a job that failed
    elsewhere: bool = False  # another launcher had it

    @property
    def stopped(self) -> bool:
        """Did a signal end it? Then the same job goes on later."""
        return self.code in {code for number in SIGNALS for code in (-number, 128 + number)}


def job(name: str, config: str, overrides: Mapping[str, str], root: Path, **more: Any) -> Job:
    """A job in a folder of its own below `root`; every field is checked here."""
    held = settings(config, overrides)
    workdir = root / run_name(held, config_hash(build.config_identity(held)))
    resumes = recipes.RECIPES[held["recipe"]].resumes
    return Job(name, config, overrides, workdir, resumes=resumes, **more)


def settings(config: str, overrides: Mapping[str, str]) -> dict[str, Any]:
    return flags.plain(flags.configured(config, overrides))
