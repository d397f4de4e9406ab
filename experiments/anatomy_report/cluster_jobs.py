"""Trains members in the jobs of a Slurm cluster.

    MEMBERS/PACK/pack.json    the members of one job, which are called a pack
    MEMBERS/PACK.log          the output of the job
    MEMBERS/slurm/            the jobs in the queue of the cluster
    MEMBERS/*.json            the trained members (`store`)

A member is a variant at one seed, one learning rate and one number of steps. A job stores each
member as soon as it is trained, and a job that is queued again trains only its missing members. If
the command is repeated, it finds the jobs that wait or run. It submits new jobs only for members
that no such job trains.
"""

import contextlib
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from experiments.schedule.executor import Executor
from experiments.schedule.jobs import Job
from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import with_checksum, without_checksum, write_json
from jaxformer.runtime.progress import Interrupt
from jaxformer.studies.anatomy.parts import Variant
from jaxformer.studies.anatomy.store import Store
from jaxformer.studies.anatomy.study import Member, Result, Study
from jaxformer.studies.anatomy.subject import Subject
from jaxformer.studies.anatomy.workers import TrainAll

PROGRAM = (sys.executable, str(Path(__file__).parents[1] / "anatomy.py"))
# Training time of one job. Members share a job because starting and compiling take a minute.
JOB_SECONDS = 300.0
PACK_FILE = "pack.json"


def train_in_jobs(
    study: Study,
    interrupt: Interrupt,
    make_executor: Callable[[], Executor],
    argv: Sequence[str],
) -> TrainAll:
    """Returns a function that trains members in jobs and yields them as the jobs end.

    Args:
      study: the study. Its store is a folder that all nodes share.
      interrupt: receives the signal that stopped the executor. The jobs stay in the queue.
      make_executor: returns the executor.
      argv: the arguments of the command, which the jobs repeat.
    """

    def train_all(members: Sequence[Member]) -> Iterator[Result]:
        executor, missing, failures = make_executor(), list(members), []
        try:
            with executor:
                for outcome in executor.run(jobs_of(study.store, members, argv)):
                    if outcome.code and not outcome.by_other_launcher:
                        failures.append(f"{outcome.message} ({outcome.job.log()})")
                    for member in list(missing):
                        if (trained := study.store.get(*member)) is not None:
                            missing.remove(member)
                            yield Result(member, trained, None)
        finally:  # also if the caller reads no further results
            interrupt.signal = interrupt.signal or executor.signal
        if missing and not executor.signal:
            reason = failures[0] if failures else f"nothing was written into {study.store.folder}"
            raise UserError(
                f"{len(missing)} of {len(members)} trainings are missing: {reason}. What was "
                "trained is kept: the same command continues."
            )

    return train_all


def jobs_of(store: Store, members: Sequence[Member], argv: Sequence[str]) -> list[Job]:
    """Returns jobs that train members, first the unfinished jobs of earlier commands."""
    assert store.folder is not None
    packs, remaining = [], list(members)
    for file in sorted(store.folder.glob(f"*/{PACK_FILE}")):
        pack = read_pack(file)
        if not (file.parent / "result.json").exists() and {*pack} & {*remaining}:
            packs.append((file, pack))
            remaining = [member for member in remaining if member not in pack]
    # The shortest training has the least compilation, so it estimates the others best.
    seconds = min((trained.seconds for trained in store.members.values()), default=JOB_SECONDS)
    pack_size = max(1, int(JOB_SECONDS / max(seconds, 1e-3)))
    for first in range(0, len(remaining), pack_size):
        pack = remaining[first : first + pack_size]
        name = hashlib.sha256(json.dumps(pack).encode()).hexdigest()[:12]
        file = store.folder / f"job-{name}" / PACK_FILE
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, with_checksum({"members": pack}))
        packs.append((file, pack))
    return [
        Job(
            _job_name(pack),
            config="",
            overrides={},
            workdir=file.parent.absolute(),
            seconds=seconds * len(pack),
            command=(*PROGRAM, *argv, f"--pack={file.absolute()}"),
        )
        for file, pack in packs
    ]


def _job_name(pack: Sequence[Member]) -> str:
    others = f" and {len(pack) - 1} more" if len(pack) > 1 else ""
    return pack[0].variant.name + others


def read_pack(file: Path) -> list[Member]:
    """Returns the members of a job; an empty list if the file is damaged."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        rows = without_checksum(json.loads(file.read_bytes()))["members"]
        return [
            # Packs of older versions have no steps of their own.
            Member(Variant(**row["variant"]), row["seed"], row["rate"], row.get("times", 1))
            for row in rows
        ]
    return []


def train_pack(file: Path, subject: Subject) -> int:
    """Trains the members of a job on its node; returns the exit code."""
    folder, members = file.parent.parent, read_pack(file)
    if not members:
        raise UserError(f"{file} is damaged: delete {file.parent} and repeat the command.")
    if not folder.name.endswith(subject.hash[:12]):
        raise UserError(f"{subject.name} has changed since its job was submitted.")
    study = Study(subject, [], Store(folder))
    with Interrupt() as interrupt:
        for done, member in enumerate(members):
            if study.store.get(*member) is None:
                if interrupt.signal:
                    return 128 + interrupt.signal
                print(f"step {done}/{len(members)}: {member.variant.name}", flush=True)
                study.keep(study.train(member))
    write_json(file.parent / "result.json", {"members": len(members)})
    return 0
