"""Runs jobs, each `run.py` in a process of its own: progress, signals, what came out.

    with Launcher(processes=2) as launcher:
        for outcome in launcher.run(jobs):
            ..

SIGINT and SIGTERM (and a closed terminal) are passed to the running jobs, which save and stop; no
further job is started. The same workdirs go on from there. A second signal stops the jobs at once.
"""

import fcntl
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import jax

from experiments import recipes
from experiments.ledger.record import run_name
from experiments.schedule import child
from experiments.shared import flags
from jaxformer import build
from jaxformer.records import config_hash
from jaxformer.training.progress import Line, clock

PROGRAM: tuple[str, ...] = (sys.executable, str(Path(__file__).parents[1] / "run.py"))
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PATIENCE = 60.0  # seconds for the run of a killed launcher to save and stop
POLL = 0.1  # seconds between two looks at the running jobs


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

    def words(self) -> list[str]:
        fields = [f"--config.{name}={text}" for name, text in self.overrides.items()]
        record = ["--record"] * self.record
        return [f"--config={self.config}", *fields, f"--workdir={self.workdir}", *record]

    def log(self) -> Path:
        return self.workdir.with_name(f"{self.workdir.name}.log")

    def is_finished(self) -> bool:
        return (self.workdir / "result.json").exists()

    def is_started(self) -> bool:
        return (self.workdir / "config.json").exists()


class Outcome(NamedTuple):
    job: Job
    code: int  # of the process
    seconds: float
    message: str  # the last word of a job that failed

    @property
    def stopped(self) -> bool:
        """Did a signal end it? Then the same job goes on later."""
        return self.code in {code for number in SIGNALS for code in (-number, 128 + number)}


class Launcher:
    """Runs jobs, some at a time. `signal` is the one that stopped it, or 0."""

    def __init__(self, processes: int = 1, deadline: float = math.inf):
        self.processes, self.deadline, self.signal = processes, deadline, 0
        self.running: dict[subprocess.Popen, tuple[Job, float]] = {}
        self.line = Line(live=0.5, printed=60.0)
        self.line.printed = time.monotonic()  # in a pipe the first one is not due at once

    def __enter__(self) -> "Launcher":
        self._before = {s: signal.signal(s, self._pass_on) for s in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.running:
            process.terminate()
        for process in self.running:
            process.wait()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        """Yields what became of each job as it ends; the next is taken when a place is free."""
        waiting = iter(jobs)
        while True:
            while len(self.running) < self.processes and not self.signal:
                if (job := next(waiting, None)) is None:
                    break
                self._start(job)
            if not self.running:
                return
            time.sleep(POLL)
            if time.monotonic() > self.deadline:
                self._send(signal.SIGTERM)
                self.deadline = math.inf  # once: a second signal would not let it save
            if self.line.is_due():
                said = (self._say(job, began) for job, began in self.running.values())
                self.line.show(f"  {' | '.join(said)}")
            for process in [p for p in self.running if p.poll() is not None]:
                job, began = self.running.pop(process)
                self.line.clear()
                code, spent = process.returncode, time.monotonic() - began
                yield Outcome(job, code, spent, _last_words(job, code))

    def _start(self, job: Job) -> None:
        job.workdir.parent.mkdir(parents=True, exist_ok=True)
        self._wait_for(job)
        with open(job.log(), "wb") as log:
            process = subprocess.Popen(
                child.together([*PROGRAM, *job.words()]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment(),
                start_new_session=True,  # Ctrl-C reaches it through us, and only once
            )
        self.running[process] = (job, time.monotonic())

    def _wait_for(self, job: Job) -> None:
        """Until another run of the folder has ended: that of a killed launcher saves and stops."""
        patience = time.monotonic() + PATIENCE
        if _is_held(job):
            print(f"  {job.name}: waiting for the run that still holds its folder", flush=True)
        while _is_held(job) and not self.signal and time.monotonic() < patience:
            time.sleep(POLL)

    def _environment(self) -> dict[str, str]:
        # A job is alone, and no task of the Slurm job that we may be in.
        environment = {n: text for n, text in os.environ.items() if not n.startswith("SLURM_")}
        if self.processes > 1:
            # Side by side they would fight for cores, and each would take most of an accelerator.
            environment.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
            environment.setdefault("OMP_NUM_THREADS", "1")
            environment.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        return environment

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        if not self.signal:
            print("\nstopping; once more to stop at once", file=sys.stderr)
        self.signal = number
        self._send(signal.SIGTERM)

    def _send(self, number: int) -> None:
        for process in list(self.running):
            process.send_signal(number)

    def _say(self, job: Job, began: float) -> str:
        """For how long it runs, and how far it says it is."""
        steps = re.findall(r"step (\d+)/(\d+)", _tail(job))
        far = f", step {steps[-1][0]} of {steps[-1][1]}" if steps else ""
        return f"{job.name}: {clock(time.monotonic() - began)}{far}"


def leave_accelerators() -> None:
    """For a process that only starts others: it takes no memory of the device that they need."""
    jax.config.update("jax_platforms", "cpu")


def job(name: str, config: str, overrides: Mapping[str, str], root: Path, **more: Any) -> Job:
    """A job in a folder of its own below `root`; every field is checked here."""
    held = settings(config, overrides)
    workdir = root / run_name(held, config_hash(build.said(held)))
    resumes = recipes.RECIPES[held["recipe"]].resumes
    return Job(name, config, overrides, workdir, resumes=resumes, **more)


def settings(config: str, overrides: Mapping[str, str]) -> dict[str, Any]:
    return flags.plain(flags.configured(config, overrides))


def _is_held(job: Job) -> bool:
    """Does a process hold the lock of the job's folder?"""
    try:
        with open(job.workdir / ".lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass  # no folder yet, or none that can be read: the job will say it
    return False


def _last_words(job: Job, code: int) -> str:
    """The error line of a log, or else its last line."""
    if code < 0:
        return f"killed by signal {-code}" + " (out of memory?)" * (code == -signal.SIGKILL)
    lines = [line for line in _tail(job).splitlines() if line.strip()]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (errors or lines or ["it said nothing"])[-1][:500]


def _tail(job: Job) -> str:
    try:
        with open(job.log(), "rb") as log:
            log.seek(max(0, os.path.getsize(job.log()) - 4000))
            return log.read().decode(errors="replace")
    except OSError:
        return ""
