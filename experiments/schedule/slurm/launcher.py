"""Runs jobs as arrays of Slurm, through submitit, and watches them until all have ended.

The launcher may die: the jobs are Slurm's. The same command finds those that wait or run, watches
them, and submits what is missing. A second launcher on the same folder does the same.
"""

import contextlib
import io
import math
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from experiments.cli import flags
from experiments.schedule.devices import Place
from experiments.schedule.jobs import SIGNALS, Job, Outcome
from experiments.schedule.launch import Running
from experiments.schedule.show_runs import Board
from experiments.schedule.slurm import options as cluster
from experiments.schedule.slurm.options import Options
from experiments.schedule.slurm.queue import Queue, State, result_file
from experiments.schedule.slurm.worker import Worker
from jaxformer.core.errors import UserError

FIRST, LOOK = 1.0, 15.0  # seconds between two questions to Slurm, at first and later
ARRAY = 1000  # jobs of one array, where the cluster does not say
UNHEARD = 40  # questions without an answer until we give up
LOST = 3  # how often a job that is lost without a word is submitted again


class SlurmLauncher:
    """Like `launch.Launcher`, with a cluster in place of processes."""

    def __init__(
        self, options: Options, root: Path, places: Any = 1, deadline: float = math.inf
    ) -> None:
        self.options, self.deadline, self.signal = options, deadline, 0
        self.queue, self.board = Queue(root), Board()
        self.began: dict[str, float] = {}
        self.lost: dict[str, int] = {}
        self.unheard = 0  # questions in a row without an answer

    def __enter__(self) -> "SlurmLauncher":
        cluster.check_cluster(self.options)
        cluster.check_path(self.queue.folder)
        self._before = {s: signal.signal(s, self._note) for s in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        self.board.clear()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        """Submits what is not in the queue, and yields what became of each job as it ends."""
        left = {job.workdir.name: job for job in jobs}
        cluster.check_jobs(self.options, list(left.values()))
        mine = self._submit_missing(left)
        wait = FIRST
        while left and not self.signal and time.monotonic() < self.deadline:
            if (states := self._states()) is not None:
                yield from self._ended(left, mine, states)
                self._show(left, mine, states)
            for _ in range(max(1, round(wait * 5))):
                if self.signal or not left:
                    break
                time.sleep(0.2)
            wait = min(wait * 1.5, LOOK)
        self.board.clear()
        if left:
            arrays = sorted({mine[run].partition("_")[0] for run in left})
            print(
                f"still in the queue: {len(left)}; the same command watches them again, "
                f"`scancel {' '.join(arrays)}` ends them.",
                flush=True,
            )
        for job in left.values():
            yield Outcome(job, -signal.SIGTERM, 0.0, "in the queue still", elsewhere=True)

    def _states(self) -> dict[str, State] | None:
        """What the queue says; None while the cluster does not answer, which it may for a time."""
        try:
            states = self.queue.states()
        except UserError as error:
            self.unheard += 1
            if self.unheard > UNHEARD:
                raise
            if self.unheard == 1:
                self.board.clear()
                print(f"  {error} The jobs go on; it is asked again.", flush=True)
            return None
        self.unheard = 0
        return states

    def _submit_missing(self, left: dict[str, Job]) -> dict[str, str]:
        """The ids of the jobs of all runs, once those that had none are submitted."""
        with self.queue.lock():
            mine, states = self.queue.ids(), self.queue.states()
            missing = [job for run, job in left.items() if mine.get(run) not in states]
            for job in missing:
                if job.anew and not job.is_held():
                    shutil.rmtree(job.workdir, ignore_errors=True)
            if known := len(left) - len(missing):
                print(f"in the queue already: {known}", flush=True)
            submit(self.options, self.queue, missing)
        return {run: name for run, name in self.queue.ids().items() if run in left}

    def _ended(
        self, left: dict[str, Job], mine: dict[str, str], states: dict[str, State]
    ) -> Iterator[Outcome]:
        for run, job in list(left.items()):
            name = mine[run]
            state = states.get(name)
            if state is not None and state.state != "PENDING":
                self.began.setdefault(name, time.monotonic())
            if state is not None and not state.is_held:
                continue
            code, spent = self.queue.result(name), self._spent(name)
            if code is None and state is None and not job.is_finished() and self._again(job, mine):
                continue
            self.board.clear()
            del left[run]
            if job.is_finished() and code in (0, None):
                yield Outcome(job, 0, spent, "")
            else:
                ended = code if isinstance(code, int) and code else 1
                yield Outcome(job, ended, spent, self._why(job, name, code, state))

    def _again(self, job: Job, mine: dict[str, str]) -> bool:
        """A job that ended without a word, as when its worker was killed, is submitted again."""
        run = job.workdir.name
        name, tried = mine[run], self.lost.get(run, 0)
        if tried >= LOST or not self.queue.has_log(name):
            return False
        self.lost[run] = tried + 1
        self.board.clear()
        print(f"  {job.name}: job {name} was lost; it is submitted again", flush=True)
        with self.queue.lock():
            submit(self.options, self.queue, [job])
        mine[run] = self.queue.ids()[run]
        return True

    def _why(self, job: Job, name: str, code: int | str | None, state: State | None) -> str:
        """One line on a job that ended without a result."""
        if code is None and not self.queue.has_log(name):
            self.cancel([name] * (state is not None))
            return (
                f"job {name} left nothing in {self.queue.folder}: is it a folder that all nodes "
                "share? Take a --workdir that is."
            )
        if isinstance(code, int):
            return job.last_words(code)
        return code or f"job {name} ended without a result: {self.queue.last_log_line(name)}"

    def cancel(self, names: Sequence[str]) -> None:
        if names:
            subprocess.run(["scancel", *names], capture_output=True)

    def _spent(self, name: str) -> float:
        return time.monotonic() - self.began.get(name, time.monotonic())

    def _show(self, left: dict[str, Job], mine: dict[str, str], states: dict[str, State]) -> None:
        if not self.board.is_due():
            return
        running = []
        for run, job in left.items():
            name, state = mine[run], states.get(mine[run])
            if state is not None and state.state == "RUNNING":
                began = self.began.get(name, time.monotonic())
                running.append(Running(job, began, Place(f"{name} {state.where}")))
        why = [s.where for run in left if (s := states.get(mine[run])) and s.state == "PENDING"]
        waiting = f"{len(left) - len(running)} wait in the queue"
        if why:  # such as Priority, Resources, PartitionNodeLimit
            waiting += f" ({max(set(why), key=why.count)})"
        self.board.show(running, 0, 0, waiting * (len(running) < len(left)))

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = number


def submit(options: Options, queue: Queue, jobs: Sequence[Job]) -> None:
    """Submits jobs as arrays of the largest size that the cluster takes."""
    if not jobs:
        return
    import submitit

    # The nodes find this checkout, whatever else is installed there.
    path = os.pathsep.join(filter(None, [str(flags.ROOT), os.environ.get("PYTHONPATH", "")]))
    size, errors = largest_array(), io.StringIO()
    with contextlib.redirect_stderr(errors), environment(PYTHONPATH=path):
        try:
            folder = queue.new_submission_folder()
            executor = submitit.SlurmExecutor(folder, max_num_timeout=options.requeues)
            name = cluster.script_name(f"jaxformer-{queue.folder.parent.name}")[:40]
            executor.update_parameters(job_name=name, **options.submitit())
            for first in range(0, len(jobs), size):
                array = jobs[first : first + size]
                submitted = executor.submit_array(
                    [
                        Worker(
                            absolute(job),
                            0.8 * options.signal,
                            result_file(folder, job.workdir.name),
                        )
                        for job in array
                    ]
                )
                ids = [(job, made.job_id) for job, made in zip(array, submitted, strict=True)]
                queue.add(ids, folder)
        except (RuntimeError, ValueError, OSError) as error:
            said = [line for line in str(error).splitlines() if line.strip()] or ["no reason given"]
            why = (said[-1].partition("error: ")[2] or said[-1]).strip().rstrip(".")
            raise UserError(f"Slurm does not take the jobs: {why}.") from None
    parent = ids[-1][1].partition("_")[0]
    print(f"submitted {len(jobs)} runs to Slurm, job {parent}; {queue.folder}", flush=True)


@contextlib.contextmanager
def environment(**words: str) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(words)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def largest_array() -> int:
    """How many jobs the cluster takes as one array."""
    done = None
    with contextlib.suppress(OSError):
        done = subprocess.run(["scontrol", "show", "config"], capture_output=True, text=True)
    found = re.search(r"MaxArraySize\s*=\s*(\d+)", done.stdout) if done else None
    return max(int(found[1]), 1) if found else ARRAY


def absolute(job: Job) -> Job:
    return job._replace(workdir=job.workdir.absolute())
