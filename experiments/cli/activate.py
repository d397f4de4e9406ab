"""Ends a command whose Python lacks what it needs, with the line that says how to find one.

A command finds it beside itself, as `cli.activate`, where nothing else can be imported yet.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from jaxformer.runtime.command_line import activation_hint

raise SystemExit(activation_hint("jax"))
