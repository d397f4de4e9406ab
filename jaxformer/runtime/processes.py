"""Several processes as one job: joining, leaving, agreeing, and ending together.

Every process runs the same program on its own devices. Process 0 writes the records. Decisions that
depend on a clock or a signal must be the same in all processes, so they go through
`from_process_0` (process 0 decides) or `any_process`.
"""

import os
import socket
import time
import traceback
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from jaxformer.core.errors import UserError
from jaxformer.runtime import process_watchdog
from jaxformer.runtime.process_watchdog import Watchdog

DETECTION_SECONDS = 2.0  # within which the watchdog notices that another process was killed
JAX_HEARTBEAT_SECONDS = 60  # JAX's own check, should the watchdog fail
ADDRESS_BYTES = 512  # of the padded text with the host, port and token of the watchdog
_watchdog: Watchdog | None = None  # in a job of several processes


def start() -> None:
    """Joins the processes of a job, before any device is used; does nothing for a single process.

    Under Slurm and on a TPU slice the launcher defines the job: the tasks of one srun. A batch
    script outside of srun runs alone, however many tasks were allocated. By hand, set
    JAX_COORDINATOR_ADDRESS (host:port of process 0), JAX_NUM_PROCESSES and JAX_PROCESS_ID.
    """
    global _watchdog
    n_processes, index = _whole_number("JAX_NUM_PROCESSES"), _whole_number("JAX_PROCESS_ID")
    coordinator = os.environ.get("JAX_COORDINATOR_ADDRESS")
    if coordinator is not None and (n_processes is None or index is None):
        raise UserError(
            "JAX_COORDINATOR_ADDRESS is set; JAX_NUM_PROCESSES and JAX_PROCESS_ID are needed too."
        )
    if coordinator is not None and not 0 <= (index or 0) < (n_processes or 0):
        raise UserError(f"JAX_PROCESS_ID must be 0 to {(n_processes or 0) - 1}, got {index}.")
    other_workers = os.environ.get("TPU_WORKER_HOSTNAMES", "").count(",")  # of a TPU slice
    if coordinator is None and _srun_tasks() < 2 and not other_workers:
        return
    options: dict[str, Any] = {"heartbeat_timeout_seconds": JAX_HEARTBEAT_SECONDS}
    if coordinator is not None:
        options |= {"num_processes": n_processes, "process_id": index}
    try:
        jax.distributed.initialize(**options)
    except (ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"cannot join the processes of this job: {reason}.") from None
    if jax.process_count() > 1:
        host = coordinator.rpartition(":")[0].strip("[]") if coordinator else socket.gethostname()
        _watchdog = process_watchdog.connect(
            jax.process_index(), jax.process_count(), host, _share_address
        )


def _share_address(address: str) -> str:
    """Returns the address of the watchdog that process 0 gives, in every process."""
    text = np.frombuffer(address.encode().ljust(ADDRESS_BYTES), np.uint8)
    shared = np.asarray(multihost_utils.broadcast_one_to_all(text), np.uint8)
    return shared.tobytes().decode().strip()


def finish() -> None:
    """Leaves the job together with all other processes."""
    if _watchdog is not None:
        jax.distributed.shutdown()
        _watchdog.send(process_watchdog.DONE)


def fail(error: BaseException) -> None:
    """Prints the error of this process, notifies the other processes of the job, and ends this one.

    An error that follows from the end of another process is not printed: the watchdog names that
    process. A process that is not part of a job returns.
    """
    if _watchdog is None:
        return
    time.sleep(DETECTION_SECONDS)  # lets the watchdog report another process as the cause
    if not _watchdog.exit_lock.acquire(blocking=False):
        time.sleep(60)  # the watchdog is ending this process
    cause = min(_watchdog.failing, default=None)
    is_user_visible = isinstance(error, UserError | KeyboardInterrupt)
    _watchdog.send(process_watchdog.FAILING)
    if cause is not None and not is_user_visible:
        message = process_watchdog.peer_error_message(f"process {cause} met an error")
        code = process_watchdog.PEER_FAILED_CODE
    elif isinstance(error, KeyboardInterrupt):
        message, code = "interrupted.", 130
    elif isinstance(error, UserError | OSError):
        message, code = f"error: {error}", 2
    else:
        message, code = "".join(traceback.format_exception(error)).rstrip(), 1
    if is_writer():  # JAX's service ends with this process: the others have to end before it
        process_watchdog.print_line(message)
        _watchdog.wait_for_peers(2 * process_watchdog.GRACE_SECONDS)
        message = ""
    process_watchdog.exit_now(message, code)


def _whole_number(name: str) -> int | None:
    """Returns the whole number in an environment variable, None if it is not set."""
    text = os.environ.get(name, "")
    if text and not text.isdecimal():
        raise UserError(f"{name} must be a whole number, got {text!r}.")
    return int(text) if text else None


def _srun_tasks() -> int:
    """Returns the number of tasks of the srun that started this process; 1 outside of srun."""
    tasks = _whole_number("SLURM_NTASKS") if "SLURM_STEP_NODELIST" in os.environ else 1
    return _whole_number("SLURM_STEP_NUM_TASKS") or tasks or 1


def is_writer() -> bool:
    """Tests whether this process writes the records of its job."""
    return jax.process_index() == 0


def from_process_0(value: int) -> int:
    """Returns the value of process 0 in every process."""
    if jax.process_count() == 1:
        return value
    return int(multihost_utils.broadcast_one_to_all(np.int32(value)))


def barrier() -> None:
    """Waits until every process of the job calls it."""
    from_process_0(0)


def any_process(flag: bool) -> bool:
    """Tests whether the flag is set in any process."""
    return bool(largest(int(flag)))


def largest(value: int) -> int:
    """Returns the largest of the values of all processes."""
    if jax.process_count() == 1:
        return value
    return int(np.max(multihost_utils.process_allgather(np.int32(value))))


def on_host(leaf) -> np.ndarray:
    """Copies a whole array to the host, including parts on the devices of other processes."""
    if isinstance(leaf, jax.Array) and not (leaf.is_fully_addressable or leaf.is_fully_replicated):
        return np.asarray(multihost_utils.process_allgather(leaf, tiled=True))
    return np.asarray(leaf)
