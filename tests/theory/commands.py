"""A command as a shell runs it, where nobody has asked for float64."""

import sys
from collections.abc import Callable, Sequence

import jax


def run(main: Callable[[Sequence[str]], int], words: Sequence[str]) -> None:
    """Ends with SystemExit where the command ends with another code than 0."""
    with jax.enable_x64(False):
        code = main(words)
    if code:
        sys.exit(code)
