"""Options of Slurm jobs, from a small TOML file: --slurm=FILE.

    time = "2h"             # limit of one job; a longer run saves, is queued again and resumes
    partition = "gpu"
    gpus = 1                # for each run
    cpus = 8

`Options` lists all fields with their defaults. The fields are those of sbatch. `more` takes any
other flag of sbatch: more = { reservation = "deadline" }.
"""

import math
import re
import shutil
import subprocess
from argparse import ArgumentTypeError
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from experiments.cli.toml_file import read_toml
from experiments.schedule.jobs import Job
from jaxformer.core.errors import UserError, check_choice, did_you_mean
from jaxformer.core.text_format import duration
from jaxformer.runtime.command_line import seconds
from jaxformer.training.session import SAVE_SECONDS


@dataclass(frozen=True)
class Options:
    """The fields of the file. Empty fields are left to the defaults of the cluster."""

    time: str = "1h"  # the time limit of one job
    signal: int = 90  # seconds between the signal to save and the end of the job
    requeues: int = 100  # how many times a run that needs more time is queued again
    partition: str = ""
    constraint: str = ""
    account: str = ""
    qos: str = ""
    gpus: int = 0  # for each node
    cpus: int = 0  # for each process
    memory: str = ""  # for each node, such as "32GB"
    nodes: int = 1  # for each run; its processes start through srun
    processes_per_node: int = 1
    at_once: int = 256  # jobs of an array that may run at a time
    setup: tuple[str, ...] = ()  # shell commands before the run, such as "module load cuda"
    more: dict[str, Any] = field(default_factory=dict)  # other flags of sbatch

    @property
    def minutes(self) -> int:
        return math.ceil(seconds(self.time) / 60)

    def submitit(self) -> dict[str, Any]:
        """Returns the options as arguments of submitit's `update_parameters`."""
        optional = {
            "partition": self.partition,
            "constraint": self.constraint,
            "account": self.account,
            "qos": self.qos,
            "gpus_per_node": self.gpus,
            "cpus_per_task": self.cpus,
            "mem": self.memory,
            "setup": list(self.setup),
        }
        return {name: value for name, value in optional.items() if value} | {
            "time": self.minutes,
            "nodes": self.nodes,
            "ntasks_per_node": self.processes_per_node,
            "signal_delay_s": self.signal,
            "array_parallelism": self.at_once,
            "stderr_to_stdout": True,
            "wckey": None,  # clusters without such keys reject them
            "additional_parameters": {"requeue": True, **self.more},
        }


def read(path: str) -> Options:
    """Reads a file of options. An empty path gives the defaults."""
    if not path:
        return Options()
    missing = f"no file {path!r} of options for Slurm; see configs/slurm/example.toml."
    file, content = read_toml(path, missing)
    kinds = {f.name: type(getattr(Options(), f.name)) for f in fields(Options)}
    for name, value in content.items():
        if name not in kinds:
            hint = f"{did_you_mean(name, kinds)} The fields are {', '.join(kinds)}."
            raise UserError(f"{file} has no field {name!r}.{hint}")
        kind = kinds[name]
        is_right = type(value) is (list if kind is tuple else kind)  # TOML has no tuples
        if is_right and kind is tuple:
            is_right = all(isinstance(line, str) for line in value)
        if not is_right:
            raise UserError(f"{file}: {name} must be {LABELS[kind]}, got {value!r:.100}.")
    values: dict[str, Any] = {n: tuple(v) if kinds[n] is tuple else v for n, v in content.items()}
    return check(Options(**values))


# The names of the types in error messages.
LABELS = {str: "a text", int: "a whole number", tuple: "a list of texts", dict: "a table"}


def check(options: Options) -> Options:
    """Returns the options; raises UserError if one is wrong or leaves no time to save."""
    try:
        limit = seconds(options.time)
    except ArgumentTypeError as error:
        raise UserError(f"time {error}.") from None
    for name in ("signal", "requeues", "gpus", "cpus", "nodes", "processes_per_node", "at_once"):
        minimum = 0 if name in ("requeues", "gpus", "cpus") else 1
        if getattr(options, name) < minimum:
            raise UserError(f"{name} must be at least {minimum}, got {getattr(options, name)}.")
    for name, value in [*vars(options).items(), *options.more.items()]:
        if name != "setup" and not f"{name}{value}".isprintable():
            raise UserError(f"{name!r} must be text on one line, got {value!r:.100}.")
    if limit - options.signal < SAVE_SECONDS:
        raise UserError(
            f"time = {options.time!r} is too short: a run receives the signal to save "
            f"{options.signal} s before the end, and it saves every {SAVE_SECONDS} s; take at "
            f"least {duration(options.signal + SAVE_SECONDS)}."
        )
    return options


def check_jobs(options: Options, jobs: Sequence[Job]) -> None:
    """Raises UserError if a run that saves no checkpoints would not end in time."""
    limit = seconds(options.time)
    for job in jobs:
        if not job.resumes and job.seconds > limit:
            raise UserError(
                f"{job.name} takes about {duration(job.seconds)} and saves no checkpoints: "
                f"time = {options.time!r} is too short for it."
            )


def check_cluster(options: Options) -> None:
    """Raises UserError if Slurm, submitit or a partition is missing."""
    for program in ("sbatch", "srun", "sinfo", "squeue", "scancel"):
        if shutil.which(program) is None:
            raise UserError(f"--executor=slurm needs Slurm: there is no {program} on this machine.")
    try:
        import submitit  # noqa: F401
    except ModuleNotFoundError:
        raise UserError(
            "--executor=slurm needs submitit: pip install 'jaxformer[slurm]'."
        ) from None
    sinfo = subprocess.run(["sinfo", "-h", "-o", "%R"], capture_output=True, text=True)
    if sinfo.returncode:
        reason = (sinfo.stderr.strip().splitlines() or ["sinfo printed nothing"])[0]
        raise UserError(f"Slurm does not answer: {reason}.")
    if options.partition:
        for name in options.partition.split(","):
            check_choice("partition", name, sinfo.stdout.split())


def check_path(folder: Path) -> None:
    """Raises UserError if a path cannot be written into a batch script.

    The `#SBATCH` lines of a script are shell comments. A line break in a path would end the
    comment, and the shell would execute the rest of the path.
    """
    if re.fullmatch(r"[\w./-]+", str(folder)) is None:
        raise UserError(
            "--executor=slurm needs a --workdir of letters, digits and '._-', "
            f"got {str(folder.parent)!r:.200}."
        )


def script_name(name: str) -> str:
    """Replaces all characters by "-", except ASCII letters, digits and "._-"."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)
