"""The Slurm jobs of the runs in a folder, and their states.

    ROOT/slurm/jobs.jsonl       a row for each job: {"run": "mixit-hops-..", "job": "12_3",
                                "folder": "9f86d081.."}
    ROOT/slurm/FOLDER/          the files of one submission: pickles and logs of submitit, and
                                RUN.json, the result of each run's job
    ROOT/RUN.log                the log of the run itself

Every submission makes a new folder, so a job never unpickles a file that was in ROOT before. The
launcher reads text and JSON only. It queries `squeue` but not `sacct`, because some clusters keep
no accounts.
"""

import contextlib
import json
import re
import secrets
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from experiments.schedule.jobs import Job
from jaxformer.core.errors import UserError
from jaxformer.io.file_lock import wait_for_lock

FOLDER = "slurm"
ALIVE_STATES = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED")
ALIVE_STATES += ("SIGNALING", "REQUEUED", "REQUEUE_FED", "PREEMPTED", "RESIZING", "STAGE_OUT")
JOB_ID = re.compile(r"[0-9]+(_[0-9]+)?")  # "12", or "12_3" in an array
SUBMISSION_NAME = re.compile(r"[0-9a-f]{32}")
# A job waits forever if the reason that Slurm gives ends with one of these texts.
ABANDONED_REASONS = ("requeued_held", "jobholdmaxrequeue")


class State(NamedTuple):
    """The state of a job that waits or runs."""

    state: str  # "RUNNING"
    where: str  # the node, or the reason for which the job waits

    @property
    def is_abandoned(self) -> bool:
        """Whether Slurm will not start the job again."""
        reason = self.where.lower().replace(" ", "_")
        is_on_hold = self.state in ("REQUEUE_HOLD", "SPECIAL_EXIT")
        return is_on_hold or reason.endswith(ABANDONED_REASONS)


class Queue:
    """The Slurm jobs of the runs below a folder."""

    def __init__(self, root: Path):
        self.folder = root.absolute() / FOLDER
        self.file = self.folder / "jobs.jsonl"

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Makes other launchers wait until this one has submitted its jobs."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / ".lock", "a") as lock:
            # Without locks here, launchers do not wait. The runs still lock their folders.
            with contextlib.suppress(OSError):
                wait_for_lock(lock)
            yield

    def new_submission_folder(self) -> Path:
        """Makes an empty folder for the files of one submission."""
        folder = self.folder / secrets.token_hex(16)
        folder.mkdir(parents=True)
        return folder

    def rows(self) -> list[dict[str, str]]:
        """Returns the rows of jobs.jsonl that are complete and name a Slurm job."""
        rows = []
        with contextlib.suppress(FileNotFoundError):
            for line in self.file.read_text(errors="replace").splitlines():
                with contextlib.suppress(ValueError, RecursionError):
                    row = json.loads(line)
                    if is_row(row):
                        rows.append(row)
        return rows

    def ids(self) -> dict[str, str]:
        """Maps the name of each run's folder to the id of its last job."""
        return {row["run"]: row["job"] for row in self.rows()}

    def add(self, ids: Iterable[tuple[Job, str]], submission: Path) -> None:
        """Appends a row for each (run, id of its job) of a submission."""
        with open(self.file, "a") as file:
            for job, job_id in ids:
                row = {"run": job.workdir.name, "job": job_id, "folder": submission.name}
                file.write(json.dumps(row) + "\n")

    def states(self) -> dict[str, State]:
        """Returns the states of all jobs that wait or run, by job id."""
        arrays = sorted({job_id.partition("_")[0] for job_id in self.ids().values()})
        return query_states(arrays) if arrays else {}

    def last_log_line(self, job_id: str) -> str:
        """Returns the last error line, or else the last line, of a job's log; "" without a log."""
        text = "".join(file.read_text(errors="replace") for file in self._logs(job_id))
        lines = [line for line in text.splitlines() if line.strip()]
        errors = [line for line in lines if "error:" in line]
        return (errors or lines or [""])[-1][:300]

    def has_log(self, job_id: str) -> bool:
        return bool(self._logs(job_id))

    def result(self, job_id: str) -> int | str | None:
        """Returns the exit code of a job, its error as a text, or None if it left no result."""
        row = self._row(job_id)
        if row is None:
            return None
        folder = self.folder / row["folder"]
        with contextlib.suppress(OSError, ValueError, AttributeError):
            result = json.loads(result_file(folder, row["run"]).read_text())
            if type(code := result.get("code")) is int:
                return code
            if isinstance(error := result.get("error"), str):
                return error
        # If the worker could not be imported, only submitit has written a file.
        if (folder / f"{job_id}_0_result.pkl").exists():
            return self.last_log_line(job_id) or "the job could not start the run"
        return None

    def _row(self, job_id: str) -> dict[str, str] | None:
        return next((row for row in reversed(self.rows()) if row["job"] == job_id), None)

    def _logs(self, job_id: str) -> list[Path]:
        row = self._row(job_id)
        return sorted((self.folder / row["folder"]).glob(f"{job_id}_*_log.out")) if row else []


def result_file(submission: Path, run: str) -> Path:
    """Returns the file in which the worker of a run writes {"code": 0} or {"error": "why"}."""
    return submission / f"{run}.json"


def is_row(row: Any) -> bool:
    """Returns whether a row names a run, a job of Slurm and the folder of a submission."""
    match row:
        case {"run": str(run), "job": str(job), "folder": str(folder)}:
            is_file_name = run == Path(run).name and "\0" not in run
            is_job = JOB_ID.fullmatch(job) is not None
            return is_file_name and is_job and SUBMISSION_NAME.fullmatch(folder) is not None
    return False


def query_states(job_ids: Iterable[str]) -> dict[str, State]:
    """Queries squeue for jobs and arrays.

    Returns:
        The states by job id. Jobs that squeue does not list have ended.
    """
    states = {}
    for job_id in job_ids:
        # The format is: job id | state | node | reason for waiting.
        command = ["squeue", "-h", "-r", "-t", "all", "-o", "%i|%T|%N|%r", "-j", job_id]
        squeue = subprocess.run(command, capture_output=True, text=True)
        if squeue.returncode and "Invalid job id" not in squeue.stderr:
            reason = (squeue.stderr.strip().splitlines() or ["squeue printed nothing"])[-1]
            raise UserError(f"Slurm does not answer: {reason}.")
        for line in squeue.stdout.splitlines():
            listed_id, state, node, reason = line.split("|", 3)
            if state in ALIVE_STATES or state.startswith("REQUEUE"):
                states[listed_id] = State(state, node or reason)
    return states
