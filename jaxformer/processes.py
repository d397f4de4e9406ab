"""Several processes as one job: who writes, what all must decide alike, what happens if one dies.

Every process runs the same program on its own devices. Process 0 writes the records; anything that
depends on a clock or a signal is decided by process 0, or by any, and told to all.
"""

import os
from pathlib import Path

import jax
import numpy as np
from jax.experimental import multihost_utils

from jaxformer.errors import UserError


def start() -> None:
    """Joins the processes of a job, before any device is used; does nothing for a single one.

    Under Slurm and on a TPU slice the launcher says who takes part: the tasks of one srun. A batch
    script that is no step of srun runs alone, however many tasks were asked for. By hand, set
    JAX_COORDINATOR_ADDRESS (host:port of process 0), JAX_NUM_PROCESSES and JAX_PROCESS_ID.
    """
    number, index = (os.environ.get(f"JAX_{word}") for word in ("NUM_PROCESSES", "PROCESS_ID"))
    by_hand = "JAX_COORDINATOR_ADDRESS" in os.environ
    if by_hand and not (number and index):
        raise UserError(
            "JAX_COORDINATOR_ADDRESS is set; JAX_NUM_PROCESSES and JAX_PROCESS_ID are needed too."
        )
    workers = os.environ.get("TPU_WORKER_HOSTNAMES", "").count(",")
    if by_hand:
        jax.distributed.initialize(num_processes=int(number or 1), process_id=int(index or 0))
    elif _tasks_of_the_step() > 1 or workers:
        jax.distributed.initialize()


def _tasks_of_the_step() -> int:
    """Of the srun that started this process; 1 outside of any."""
    tasks = os.environ.get("SLURM_NTASKS", "1") if "SLURM_STEP_NODELIST" in os.environ else "1"
    return int(os.environ.get("SLURM_STEP_NUM_TASKS", tasks))


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
    if jax.process_count() == 1:
        return flag
    return bool(np.any(multihost_utils.process_allgather(np.int32(flag))))


def on_host(leaf) -> np.ndarray:
    """The whole array, also when its parts lie on the devices of other processes."""
    if isinstance(leaf, jax.Array) and not (leaf.is_fully_addressable or leaf.is_fully_replicated):
        return np.asarray(multihost_utils.process_allgather(leaf, tiled=True))
    return np.asarray(leaf)
