"""Closed forms and solvers for the networks of jaxformer. Precision: run them in float64.

Where it makes sense a theory is a pair: `predict`, the formula, and `measure`, the same quantity
from finite networks. The docstring of each package says which of its functions are the pair, and
whether they are built from the models' lines. Use them inside `with jax.enable_x64(True):`, as the
recipes and the commands do. A run and a published model are measured in their own precision.
"""

import sys

from jaxformer.runtime.command_line import require_package, shorten_interrupts

if sys.argv[:1] == ["-m"]:  # python -m theory.advise is on its way: a command, not a library
    shorten_interrupts()
    require_package("numpy")
