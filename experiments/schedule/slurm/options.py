"""What a cluster is told of each run: a small TOML file, --slurm=FILE.

    time = "2h"             # of one job; a longer run is saved in time, queued again and goes on
    partition = "gpu"
    gpus = 1                # for each run
    cpus = 8

`Options` lists all fields with their defaults. The fields are those of sbatch; `more` takes what
is missing here: more = { reservation = "deadline" }.
"""

import math
import re
import shutil
import subprocess
import tomllib
from argparse import ArgumentTypeError
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from experiments.cli import flags
from experiments.schedule.jobs import Job
from jaxformer.core.errors import UserError, check_choice, did_you_mean
from jaxformer.core.text_format import duration
from jaxformer.runtime.command_line import seconds
from jaxformer.training.session import SAVE_SECONDS


@dataclass(frozen=True)
class Options:
    """The fields of the file; what is None or empty is left to the cluster."""

    time: str = "1h"  # of one job
    signal: int = 90  # seconds before the end at which it is told to save
    requeues: int = 100  # how often a run that needs more time is queued again
    partition: str = ""
    constraint: str = ""
    account: str = ""
    qos: str = ""
    gpus: int = 0  # of a node
    cpus: int = 0  # of a process
    memory: str = ""  # "32GB", of a node
    nodes: int = 1  # of a run; its processes join through srun
    processes_per_node: int = 1
    at_once: int = 256  # jobs of the array that may run at a time
    setup: tuple[str, ...] = ()  # lines of shell before the run, such as "module load cuda"
    more: dict[str, Any] = field(default_factory=dict)  # any other flag of sbatch

    @property
    def minutes(self) -> int:
        return math.ceil(seconds(self.time) / 60)

    def submitit(self) -> dict[str, Any]:
        """The same in the words of submitit."""
        said = {
            "partition": self.partition,
            "constraint": self.constraint,
            "account": self.account,
            "qos": self.qos,
            "gpus_per_node": self.gpus,
            "cpus_per_task": self.cpus,
            "mem": self.memory,
            "setup": list(self.setup),
        }
        return {name: value for name, value in said.items() if value} | {
            "time": self.minutes,
            "nodes": self.nodes,
            "ntasks_per_node": self.processes_per_node,
            "signal_delay_s": self.signal,
            "array_parallelism": self.at_once,
            "stderr_to_stdout": True,
            "wckey": None,  # a cluster that knows no such keys refuses them
            "additional_parameters": {"requeue": True, **self.more},
        }


def read(path: str) -> Options:
    """The options of a file; those of no file are the defaults."""
    if not path:
        return Options()
    file = next((p for p in (Path(path), flags.ROOT / path) if p.is_file()), None)
    if file is None:
        raise UserError(f"no file {path!r} of options for Slurm; see configs/slurm/example.toml.")
    try:
        held = tomllib.loads(file.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError, OSError) as error:
        raise UserError(f"{file} is not TOML: {error}.") from None
    kinds = {f.name: type(getattr(Options(), f.name)) for f in fields(Options)}
    for name, value in held.items():
        if name not in kinds:
            known = f"{did_you_mean(name, kinds)} The fields are {', '.join(kinds)}."
            raise UserError(f"{file} has no field {name!r}.{known}")
        is_right = type(value) is (list if kinds[name] is tuple else kinds[name])
        if kinds[name] is tuple and not all(isinstance(line, str) for line in [*value]):
            is_right = False
        if not is_right:
            raise UserError(f"{file}: {name} must be {WORDS[kinds[name]]}, got {value!r:.100}.")
    values: dict[str, Any] = {n: tuple(v) if kinds[n] is tuple else v for n, v in held.items()}
    return check(Options(**values))


WORDS = {str: "a text", int: "a whole number", tuple: "a list of texts", dict: "a table"}


def check(options: Options) -> Options:
    """Raises unless a run can be saved before its time is up."""
    try:
        limit = seconds(options.time)
    except ArgumentTypeError as error:
        raise UserError(f"time {error}.") from None
    for name in ("signal", "requeues", "gpus", "cpus", "nodes", "processes_per_node", "at_once"):
        least = 0 if name in ("requeues", "gpus", "cpus") else 1
        if getattr(options, name) < least:
            raise UserError(f"{name} must be at least {least}, got {getattr(options, name)}.")
    for name, value in [*vars(options).items(), *options.more.items()]:
        if name != "setup" and not f"{name}{value}".isprintable():
            raise UserError(f"{name!r} must be text on one line, got {value!r:.100}.")
    if limit - options.signal < SAVE_SECONDS:
        raise UserError(
            f"time = {options.time!r} is too short: a run is told to save {options.signal} s "
            f"before the end, and saves every {SAVE_SECONDS} s; take at least "
            f"{duration(options.signal + SAVE_SECONDS)}."
        )
    return options


def check_jobs(options: Options, jobs: Sequence[Job]) -> None:
    """Raises if a run that cannot be saved would not end in time."""
    limit = seconds(options.time)
    for job in jobs:
        if not job.resumes and job.seconds > limit:
            raise UserError(
                f"{job.name} takes about {duration(job.seconds)} and cannot be saved on the way: "
                f"time = {options.time!r} is too short for it."
            )


def check_cluster(options: Options) -> None:
    """Raises where there is no Slurm, no submitit or no such partition."""
    for program in ("sbatch", "srun", "sinfo", "squeue", "scancel"):
        if shutil.which(program) is None:
            raise UserError(f"--executor=slurm needs Slurm: there is no {program} on this machine.")
    try:
        import submitit  # noqa: F401
    except ModuleNotFoundError:
        raise UserError(
            "--executor=slurm needs submitit: pip install 'jaxformer[slurm]'."
        ) from None
    done = subprocess.run(["sinfo", "-h", "-o", "%R"], capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[0]
        raise UserError(f"Slurm does not answer: {said}.")
    if options.partition:
        for name in options.partition.split(","):
            check_choice("partition", name, done.stdout.split())


def check_path(folder: Path) -> None:
    """Raises unless a path can be written into a batch script.

    The `#SBATCH` lines of a script are comments of the shell: a line break in a path ends the
    comment, and the shell would run what follows.
    """
    if re.fullmatch(r"[\w./-]+", str(folder)) is None:
        raise UserError(
            "--executor=slurm needs a --workdir of letters, digits and '._-', "
            f"got {str(folder.parent)!r:.200}."
        )


def script_name(name: str) -> str:
    """Returns a name with every character but ASCII letters, digits and '._-' as '-'."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)
