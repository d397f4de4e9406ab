"""Several processes as one job: who writes, what all must decide alike, what happens if one dies.

Every process runs the same program on its own devices. Process 0 writes the records; anything that
depends on a clock or a signal is decided by process 0, or by any, and told to all.
"""

import os
import time
import traceback
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax._src import distributed  # the address and the key-value store of the job
from jax.experimental import multihost_utils

from jaxformer.core.errors import UserError
from jaxformer.runtime import coordinator, process_watchdog

NOTICE = 2.0  # seconds in which the watch would have noticed that another process is gone
_watch: process_watchdog.Watch | None = None  # in a job of several processes


def start() -> None:
    """Joins the processes of a job, before any device is used; does nothing for a single one.

    Under Slurm and on a TPU slice the launcher says who takes part: the tasks of one srun. A batch
    script that is no step of srun runs alone, however many tasks were asked for. By hand, set
    JAX_COORDINATOR_ADDRESS (host:port of process 0), JAX_NUM_PROCESSES and JAX_PROCESS_ID.
    """
    global _watch
    number, index = (_whole(f"JAX_{word}") for word in ("NUM_PROCESSES", "PROCESS_ID"))
    by_hand = "JAX_COORDINATOR_ADDRESS" in os.environ
    if by_hand and (number is None or index is None):
        raise UserError(
            "JAX_COORDINATOR_ADDRESS is set; JAX_NUM_PROCESSES and JAX_PROCESS_ID are needed too."
        )
    if by_hand and not 0 <= (index or 0) < (number or 0):
        raise UserError(f"JAX_PROCESS_ID must be 0 to {(number or 0) - 1}, got {index}.")
    workers = os.environ.get("TPU_WORKER_HOSTNAMES", "").count(",")
    given: dict[str, Any] = {"num_processes": number, "process_id": index} if by_hand else {}
    if not by_hand and _tasks_of_the_step() < 2 and not workers:
        return
    try:
        with coordinator.apart(distributed._jax):
            jax.distributed.initialize(**given)
    except (ValueError, RuntimeError) as error:
        said = str(error).splitlines()[0]
        raise UserError(f"cannot join the processes of this job: {said}.") from None
    job = distributed.global_state
    if job.num_processes > 1:
        host = str(job.coordinator_address).rpartition(":")[0].strip("[]")
        _watch = process_watchdog.connect(job.process_id, job.num_processes, host, job.client)


def finish() -> None:
    """Leaves the job with all the others; until then each is watched."""
    if _watch is not None:
        jax.distributed.shutdown()
        _watch.say(process_watchdog.DONE)


def fail(error: BaseException) -> None:
    """Ends a process of a job of several with what went wrong, and lets the others know.

    An error that another process caused by its end is not said: the watch says that. A process
    that is alone goes on, and the error on its way.
    """
    if _watch is None:
        return
    time.sleep(NOTICE)
    if not _watch.mine.acquire(blocking=False):
        time.sleep(60)  # the watch is ending this process
    is_own = isinstance(error, UserError | KeyboardInterrupt) or not _watch.failing
    _watch.say(process_watchdog.FAILING)
    line, code = f"error: {error}", 2
    if not is_own:  # what breaks when another process leaves looks different each time
        line, code = (
            process_watchdog.line(f"process {min(_watch.failing)} met an error"),
            process_watchdog.LOST,
        )
    elif isinstance(error, KeyboardInterrupt):
        line, code = "interrupted.", 130
    elif not isinstance(error, UserError | OSError):
        line, code = "".join(traceback.format_exception(error)).rstrip(), 1
    if is_writer():  # the service of the job ends with this process: the others go first
        deadline = time.monotonic() + 2 * process_watchdog.GRACE
        os.write(2, f"{line}\n".encode())
        while len(_watch.gone) < len(_watch.peers) and time.monotonic() < deadline:
            time.sleep(0.1)
        line = ""
    process_watchdog.leave(line, code)


def _whole(name: str) -> int | None:
    """The whole number in an environment variable, None if it is not set."""
    text = os.environ.get(name, "")
    if text and not text.isdecimal():
        raise UserError(f"{name} must be a whole number, got {text!r}.")
    return int(text) if text else None


def _tasks_of_the_step() -> int:
    """Of the srun that started this process; 1 outside of any."""
    tasks = _whole("SLURM_NTASKS") if "SLURM_STEP_NODELIST" in os.environ else 1
    return _whole("SLURM_STEP_NUM_TASKS") or tasks or 1


def keep_programs() -> None:
    """Keeps compiled programs between runs, so that the second run starts at once."""
    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(home / "jaxformer"))


def is_writer() -> bool:
    """Is this the process that writes records?"""
    return jax.process_index() == 0


def agree(value: int) -> int:
    """Process 0's value, in every process."""
    if jax.process_count() == 1:
        return value
    return int(multihost_utils.broadcast_one_to_all(np.int32(value)))


def barrier() -> None:
    """Waits until every process is here."""
    agree(0)


def any_process(flag: bool) -> bool:
    """Is the flag set in some process?"""
    return bool(largest(int(flag)))


def largest(value: int) -> int:
    """The largest of the values that the processes give."""
    if jax.process_count() == 1:
        return value
    return int(np.max(multihost_utils.process_allgather(np.int32(value))))


def on_host(leaf) -> np.ndarray:
    """The whole array, also when its parts lie on the devices of other processes."""
    if isinstance(leaf, jax.Array) and not (leaf.is_fully_addressable or leaf.is_fully_replicated):
        return np.asarray(multihost_utils.process_allgather(leaf, tiled=True))
    return np.asarray(leaf)
