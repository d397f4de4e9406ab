"""Which jobs of Slurm belong to the runs of a folder, and where they are now.

    ROOT/slurm/jobs.jsonl       a row for each job: {"run": "mixit-hops-..", "job": "12_3",
                                "folder": "9f86d081.."}
    ROOT/slurm/FOLDER/          the files of one submission: pickles and logs of submitit, and
                                RUN.json, the result of each run's job
    ROOT/RUN.log                the log of the run itself

Every submission makes a new folder, so a job never unpickles a file that was in ROOT before. The
launcher reads text and JSON only. It calls `squeue` alone, since a cluster need not keep accounts.
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

NAME = "slurm"  # of the folder
ALIVE = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING")
ALIVE += ("REQUEUED", "REQUEUE_FED", "PREEMPTED", "RESIZING", "STAGE_OUT")
JOB_ID = re.compile(r"[0-9]+(_[0-9]+)?")  # "12", or "12_3" in an array
SUBMISSION_NAME = re.compile(r"[0-9a-f]{32}")
GIVEN_UP = ("requeued_held", "jobholdmaxrequeue")  # why a job waits that will not start


class State(NamedTuple):
    """Of a job that Slurm has."""

    state: str  # "RUNNING"
    where: str  # its node, or why it waits

    @property
    def is_held(self) -> bool:
        """Slurm has given up starting it."""
        why = self.where.lower().replace(" ", "_")
        return self.state in ("REQUEUE_HOLD", "SPECIAL_EXIT") or why.endswith(GIVEN_UP)


class Queue:
    """The jobs of the runs below one folder."""

    def __init__(self, root: Path):
        self.folder = root.absolute() / NAME
        self.file = self.folder / "jobs.jsonl"

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """One launcher at a time submits."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / ".lock", "a") as lock:
            with contextlib.suppress(OSError):  # no locks here: the runs' own remain
                wait_for_lock(lock)
            yield

    def new_submission_folder(self) -> Path:
        """Makes an empty folder for the files of one submission."""
        folder = self.folder / secrets.token_hex(16)
        folder.mkdir(parents=True)
        return folder

    def rows(self) -> list[dict[str, str]]:
        """Returns the rows of jobs.jsonl, without lines that are cut or name no job of Slurm."""
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
            for job, name in ids:
                row = {"run": job.workdir.name, "job": name, "folder": submission.name}
                file.write(json.dumps(row) + "\n")

    def states(self) -> dict[str, State]:
        """Of every job of ours that waits or runs, by its id."""
        mine = self.ids().values()
        parents = sorted({name.partition("_")[0] for name in mine})
        return alive(parents) if parents else {}

    def last_log_line(self, name: str) -> str:
        """Returns the last error line, or else the last line, of a job's log; "" without a log."""
        text = "".join(file.read_text(errors="replace") for file in self._logs(name))
        lines = [line for line in text.splitlines() if line.strip()]
        errors = [line for line in lines if "error:" in line]
        return (errors or lines or [""])[-1][:300]

    def has_log(self, name: str) -> bool:
        return bool(self._logs(name))

    def result(self, name: str) -> int | str | None:
        """Returns the exit code of a job, its error as a text, or None if it left no result."""
        row = self._row(name)
        if row is None:
            return None
        folder = self.folder / row["folder"]
        with contextlib.suppress(OSError, ValueError, AttributeError):
            result = json.loads(result_file(folder, row["run"]).read_text())
            if type(code := result.get("code")) is int:
                return code
            if isinstance(error := result.get("error"), str):
                return error
        # submitit leaves this file, and the worker none, where the worker could not be imported.
        if (folder / f"{name}_0_result.pkl").exists():
            return self.last_log_line(name) or "the job could not start the run"
        return None

    def _row(self, name: str) -> dict[str, str] | None:
        return next((row for row in reversed(self.rows()) if row["job"] == name), None)

    def _logs(self, name: str) -> list[Path]:
        row = self._row(name)
        return sorted((self.folder / row["folder"]).glob(f"{name}_*_log.out")) if row else []


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


def alive(parents: Iterable[str]) -> dict[str, State]:
    """What squeue says of these jobs and arrays; those that it does not know have ended."""
    found = {}
    for name in parents:
        words = ["squeue", "-h", "-r", "-t", "all", "-o", "%i|%T|%N|%r", "-j", name]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode and "Invalid job id" not in done.stderr:
            said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise UserError(f"Slurm does not answer: {said}.")
        for line in done.stdout.splitlines():
            mine, state, node, reason = line.split("|", 3)
            if state in ALIVE or state.startswith("REQUEUE"):
                found[mine] = State(state, node or reason)
    return found
