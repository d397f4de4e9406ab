"""Which jobs of Slurm belong to the runs of a folder, and where they are now.

    ROOT/slurm/jobs.jsonl       a row for each submission: {"run": "mixit-hops-..", "job": "12_3"}
    ROOT/slurm/                 the files of submitit, with what its jobs say; a run's own log lies
                                beside the run

Only `squeue` is asked, since a cluster need not keep accounts.
"""

import contextlib
import fcntl
import json
import pickle
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from experiments.schedule.jobs import Job
from jaxformer.core.errors import UserError

NAME = "slurm"  # of the folder
ALIVE = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING")
ALIVE += ("REQUEUED", "REQUEUE_FED", "PREEMPTED", "RESIZING", "STAGE_OUT")
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
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def ids(self) -> dict[str, str]:
        """The last job of each run, by the name of its folder."""
        found: dict[str, str] = {}
        with contextlib.suppress(FileNotFoundError):
            for line in self.file.read_text().splitlines():
                with contextlib.suppress(ValueError, KeyError):  # a line that was cut
                    row = json.loads(line)
                    found[row["run"]] = row["job"]
        return found

    def add(self, ids: Iterable[tuple[Job, str]]) -> None:
        with open(self.file, "a") as file:
            for job, name in ids:
                file.write(json.dumps({"run": job.workdir.name, "job": name}) + "\n")

    def states(self) -> dict[str, State]:
        """Of every job of ours that waits or runs, by its id."""
        mine = self.ids().values()
        parents = sorted({name.partition("_")[0] for name in mine})
        return alive(parents) if parents else {}

    def said(self, name: str) -> str:
        """The last line of what a job said beside the run; "" if it left nothing at all."""
        text = ""
        for file in sorted(self.folder.glob(f"{name}_*_log.out")):
            text += file.read_text(errors="replace")
        lines = [line for line in text.splitlines() if line.strip()]
        errors = [line for line in lines if "error:" in line]
        return (errors or lines or [""])[-1][:300]

    def has_log(self, name: str) -> bool:
        return any(self.folder.glob(f"{name}_*_log.out"))

    def code(self, name: str) -> int | str | None:
        """The exit code that a job gave back; a text if it failed; None if it never came back."""
        try:
            with open(self.folder / f"{name}_0_result.pkl", "rb") as file:
                how, value = pickle.load(file)  # of our own worker
        except (OSError, EOFError, ValueError, pickle.UnpicklingError):
            return None
        return int(value) if how == "success" else str(value).strip().splitlines()[-1]


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
