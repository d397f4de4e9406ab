"""Ends a command with the activation hint if its Python lacks JAX.

Commands import it as `cli.activate`: a script's own folder is on the path when nothing else is.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from jaxformer.runtime.command_line import activation_hint

raise SystemExit(activation_hint("jax"))
