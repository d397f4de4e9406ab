"""Commands. A Ctrl-C while they import is one line, and of a dead process ours is the only one."""

import importlib.util
import os

from jaxformer.runtime.command_line import shorten_interrupts

shorten_interrupts()
if importlib.util.find_spec("jax") is None:
    raise ModuleNotFoundError("this python has no jax")  # a command says how to find one that has
QUIET = "TF_CPP_MIN_LOG_LEVEL"  # read when jax is imported, which sets 1 if nobody said anything
if os.environ.keys() & {"JAX_COORDINATOR_ADDRESS", "SLURM_STEP_NUM_TASKS"}:
    # What C++ says about the end of another process is no news beside our line.
    os.environ[QUIET] = os.environ.get(QUIET, "1").replace("1", "3")
