"""Ends a command with the activation hint if its Python lacks JAX.

Commands import it as `cli.activate`, because Python always puts a script's own folder on the path.
Their parent package `experiments` may be missing from the path.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from jaxformer.runtime.command_line import activation_hint

raise SystemExit(activation_hint("jax"))
