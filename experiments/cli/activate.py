"""Ends a command with the hint to activate the environment.

A command imports this module after an import of JAX or `experiments` failed. It imports it as
`cli.activate`, because Python always puts a script's own folder on the path.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from jaxformer.runtime.command_line import activation_hint

raise SystemExit(activation_hint("jax"))
