"""Command-line programs and the papers' experiments.

Importing this package makes Ctrl-C and the death of a peer process end with one line.
"""

import importlib.util
import os

from jaxformer.runtime.command_line import shorten_interrupts

shorten_interrupts()
if importlib.util.find_spec("jax") is None:
    # A command catches this error and prints the activation hint.
    raise ModuleNotFoundError("this python has no jax")
LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"  # JAX reads it when it is imported, and sets it to 1 if unset
if os.environ.keys() & {"JAX_COORDINATOR_ADDRESS", "SLURM_STEP_NUM_TASKS"}:
    # In a job of several processes, silence the C++ errors about the end of a peer process.
    # Level 1, the default of JAX, becomes level 3. Other levels are those of the user and stay.
    os.environ[LOG_LEVEL] = os.environ.get(LOG_LEVEL, "1").replace("1", "3")
