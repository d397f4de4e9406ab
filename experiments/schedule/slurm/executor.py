"""The Slurm executor: submits jobs as arrays through submitit and watches them until they end.

The launcher may die: its jobs belong to Slurm. The same command finds the jobs that wait or run,
watches them, and submits the missing ones. A second launcher on the same folder does the same.
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
from typing import Any

from experiments.cli import flags
from experiments.schedule.devices import Slot
from experiments.schedule.executor import Executor
from experiments.schedule.jobs import Job, Outcome
from experiments.schedule.show_runs import Running
from experiments.schedule.slurm import options as slurm_options
from experiments.schedule.slurm.options import Options
from experiments.schedule.slurm.queue import Queue, State, result_file
from experiments.schedule.slurm.worker import Worker
from jaxformer.core.errors import UserError

FIRST_QUERY_SECONDS, MAX_QUERY_SECONDS = 1.0, 15.0  # time between two queries of the queue
DEFAULT_ARRAY_SIZE = 1000  # if the cluster does not report its limit
MAX_FAILED_QUERIES = 40  # in a row
MAX_RESUBMISSIONS = 3  # of a job that ended without a result
# A run may save during this fraction of the time between Slurm's signal and the end of the job.
SAVE_FRACTION = 0.8


class SlurmExecutor(Executor):
    """Runs jobs on a Slurm cluster. All jobs are submitted at once.

    Args:
        options: the options of each Slurm job.
        root: the folder of the runs.
        slots: not used; Slurm assigns the nodes.
        deadline: the time (`time.monotonic`) at which this process stops watching.
    """

    def __init__(
        self, options: Options, root: Path, slots: Any = 1, deadline: float = math.inf
    ) -> None:
        super().__init__(deadline)
        self.options, self.queue = options, Queue(root)
        self.new: list[Job] = []  # jobs to submit at the next poll
        self.ids: dict[str, str] = {}  # the job id of each run
        self.states: dict[str, State] = {}  # by job id, at the last query
        self.began: dict[str, float] = {}  # by job id
        self.resubmissions: dict[str, int] = {}  # by run
        self.failed_queries = 0  # in a row
        self.next_query = 0.0  # the time of the next query of the queue
        self.wait = FIRST_QUERY_SECONDS  # seconds between two queries

    def __enter__(self) -> "SlurmExecutor":
        slurm_options.check_cluster(self.options)
        slurm_options.check_path(self.queue.folder)
        return super().__enter__()

    def has_room(self) -> bool:
        return True

    def submit(self, job: Job) -> Iterable[Outcome]:
        self.new.append(job)
        return ()

    def poll(self, has_more: bool) -> Iterator[Outcome]:
        """Submits the new jobs that are not in the queue; yields the outcomes of ended jobs."""
        if self.new:
            self._submit_missing()
        if time.monotonic() >= self.next_query:
            if self.query_states():
                yield from self._ended()
            self.next_query = time.monotonic() + self.wait
            self.wait = min(self.wait * 1.5, MAX_QUERY_SECONDS)

    def stop(self) -> Iterator[Outcome]:
        """Yields all unfinished jobs. They stay in the queue of the cluster."""
        self.new = []
        if self.unfinished:
            runs = [job.workdir.name for job in self.unfinished]
            arrays = sorted({self.ids[run].partition("_")[0] for run in runs if run in self.ids})
            self.announce(
                f"still in the queue: {len(runs)}; run the same command again to watch them, "
                f"`scancel {' '.join(arrays)}` ends them."
            )
        for job in list(self.unfinished):
            message = "still in the queue"
            # The exit code of a stopped job, so that a later start continues it.
            yield Outcome(job, -signal.SIGTERM, 0.0, message, by_other_launcher=True)

    def show(self) -> None:
        running, reasons = [], []
        for job in self.unfinished:
            job_id = self.ids[job.workdir.name]
            state = self.states.get(job_id)
            if state is not None and state.state == "RUNNING":
                began = self.began.get(job_id, time.monotonic())
                running.append(Running(job, began, Slot(f"{job_id} {state.where}")))
            if state is not None and state.state == "PENDING":
                reasons.append(state.where)  # such as Priority, Resources, PartitionNodeLimit
        n_waiting = len(self.unfinished) - len(running)
        waiting = f"{n_waiting} wait in the queue"
        if reasons:
            waiting += f" ({max(set(reasons), key=reasons.count)})"
        self.board.show(running, 0, 0, waiting * bool(n_waiting))

    def query_states(self) -> bool:
        """Updates the states of all jobs; returns False while the cluster does not answer."""
        try:
            self.states = self.queue.states()
        except UserError as error:
            self.failed_queries += 1
            if self.failed_queries > MAX_FAILED_QUERIES:
                raise
            if self.failed_queries == 1:
                self.announce(f"  {error} The jobs continue; the query is repeated.")
            return False
        self.failed_queries = 0
        return True

    def _submit_missing(self) -> None:
        """Submits the new jobs that are not in the queue yet, and stores the id of each job."""
        jobs, self.new = self.new, []
        slurm_options.check_jobs(self.options, jobs)
        with self.queue.lock():
            ids, states = self.queue.ids(), self.queue.states()
            missing = [job for job in jobs if ids.get(job.workdir.name) not in states]
            for job in missing:
                if job.restart and not job.is_locked():
                    shutil.rmtree(job.workdir, ignore_errors=True)
            if n_queued := len(jobs) - len(missing):
                print(f"in the queue already: {n_queued}", flush=True)
            submit(self.options, self.queue, missing)
        self.ids = self.queue.ids()

    def _ended(self) -> Iterator[Outcome]:
        """Yields the outcomes of ended jobs, and submits jobs again that were lost."""
        for job in list(self.unfinished):
            job_id = self.ids[job.workdir.name]
            state = self.states.get(job_id)
            if state is not None and state.state != "PENDING":
                self.began.setdefault(job_id, time.monotonic())
            if state is not None and not state.is_abandoned:
                continue
            code = self.queue.result(job_id)
            is_lost = code is None and state is None and not job.is_finished()
            if is_lost and self._resubmit(job):
                continue
            seconds = time.monotonic() - self.began.get(job_id, time.monotonic())
            if job.is_finished() and code in (0, None):
                yield Outcome(job, 0, seconds, "")
            else:
                exit_code = code if isinstance(code, int) and code else 1
                yield Outcome(job, exit_code, seconds, self._reason(job, job_id, code, state))

    def _resubmit(self, job: Job) -> bool:
        """Submits a job again that ended without a result, for example because it was killed.

        Returns:
            False if it was submitted too often or if its files are not visible here.
        """
        run = job.workdir.name
        count = self.resubmissions.get(run, 0)
        if count >= MAX_RESUBMISSIONS or not self.queue.has_log(self.ids[run]):
            return False
        self.resubmissions[run] = count + 1
        self.announce(f"  {job.name}: job {self.ids[run]} was lost; it is submitted again")
        with self.queue.lock():
            submit(self.options, self.queue, [job])
        self.ids[run] = self.queue.ids()[run]
        return True

    def _reason(self, job: Job, job_id: str, code: int | str | None, state: State | None) -> str:
        """Returns a line that explains why a job ended without a finished run."""
        if code is None and not self.queue.has_log(job_id):
            if state is not None:
                cancel([job_id])
            return (
                f"job {job_id} left nothing in {self.queue.folder}: is it a folder that all nodes "
                "share? Choose a --workdir that all nodes can read."
            )
        if isinstance(code, int):
            return job.last_message(code)
        return code or f"job {job_id} ended without a result: {self.queue.last_log_line(job_id)}"


def submit(options: Options, queue: Queue, jobs: Sequence[Job]) -> None:
    """Submits jobs as arrays of the largest size that the cluster accepts."""
    if not jobs:
        return
    import submitit

    # The nodes import this checkout, even if another one is installed there.
    path = os.pathsep.join(filter(None, [str(flags.ROOT), os.environ.get("PYTHONPATH", "")]))
    size, errors = max_array_size(), io.StringIO()
    with contextlib.redirect_stderr(errors), temporary_environment(PYTHONPATH=path):
        try:
            folder = queue.new_submission_folder()
            executor = submitit.SlurmExecutor(folder, max_num_timeout=options.requeues)
            name = slurm_options.script_name(f"jaxformer-{queue.folder.parent.name}")[:40]
            executor.update_parameters(job_name=name, **options.submitit())
            for first in range(0, len(jobs), size):
                array = jobs[first : first + size]
                workers = [
                    Worker(
                        job._replace(workdir=job.workdir.absolute()),
                        SAVE_FRACTION * options.signal,
                        result_file(folder, job.workdir.name),
                    )
                    for job in array
                ]
                submitted = executor.submit_array(workers)
                ids = [(job, new.job_id) for job, new in zip(array, submitted, strict=True)]
                queue.add(ids, folder)
        except (RuntimeError, ValueError, OSError) as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            last = lines[-1] if lines else "no reason given"
            reason = (last.partition("error: ")[2] or last).strip().rstrip(".")
            raise UserError(f"Slurm does not accept the jobs: {reason}.") from None
    _, last_id = ids[-1]
    array_id = last_id.partition("_")[0]
    print(f"submitted {len(jobs)} runs to Slurm, job {array_id}; {queue.folder}", flush=True)


def cancel(job_ids: Sequence[str]) -> None:
    """Removes jobs from the queue of Slurm."""
    subprocess.run(["scancel", *job_ids], capture_output=True)


@contextlib.contextmanager
def temporary_environment(**variables: str) -> Iterator[None]:
    """Sets environment variables and restores the whole environment afterwards."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def max_array_size() -> int:
    """Returns the number of jobs that the cluster accepts in one array."""
    process = None
    with contextlib.suppress(OSError):
        process = subprocess.run(["scontrol", "show", "config"], capture_output=True, text=True)
    match = re.search(r"MaxArraySize\s*=\s*(\d+)", process.stdout) if process else None
    return max(int(match[1]), 1) if match else DEFAULT_ARRAY_SIZE
