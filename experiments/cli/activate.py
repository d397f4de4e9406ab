"""Helps a command that cannot import `experiments` or JAX.

A command imports this module after that failure. It imports it as `cli.activate`, because Python
always puts a script's own folder on the path. Without JAX it ends with the hint to activate the
environment. With JAX only the clone is missing from the path, as after `pip install .`: then the
command goes on with the packages of this clone.
"""

import importlib.util
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from jaxformer.runtime.command_line import activation_hint

if importlib.util.find_spec("jax") is None:
    raise SystemExit(activation_hint("jax"))
import experiments  # noqa: F401 (makes a Ctrl-C during the other imports print one line)
