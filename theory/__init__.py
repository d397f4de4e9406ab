"""Closed forms and solvers for the networks of jaxformer, one package for each theory.

Most theories are a pair: `predict` computes a quantity from formulas, and `measure` the same
quantity from finite random networks. The docstring of each package names its pair, explains its
letters, and states whether it uses the modules of `jaxformer.models`.

The theories need float64 and compute in it, also where JAX computes in float32
(`numerics.in_float64`). In a function that you compile yourself, say `with jax.enable_x64(True):`
around it, as the recipes and commands do. Runs and published models are measured in their own
precision.
"""

import sys

from jaxformer.runtime.command_line import require_package, shorten_interrupts

if sys.argv[:1] == ["-m"]:  # a command, such as python -m theory.advise
    shorten_interrupts()
    require_package("numpy")
