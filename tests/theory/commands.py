"""Runs a command with the default precision of a shell, float32."""

import sys
from collections.abc import Callable, Sequence

import jax


def run(main: Callable[[Sequence[str]], int], argv: Sequence[str]) -> None:
    """Raises SystemExit if the exit code is not 0."""
    with jax.enable_x64(False):
        code = main(argv)
    if code:
        sys.exit(code)
