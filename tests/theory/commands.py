"""Runs a command with the default precision of a shell, float32."""

import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax

from jaxformer.core.errors import UserError


def run(main: Callable[[Sequence[str]], int], argv: Sequence[str]) -> None:
    """Raises SystemExit if the exit code is not 0."""
    with jax.enable_x64(False):
        code = main(argv)
    if code:
        sys.exit(code)


def wrong_errors(cases: Sequence[tuple[Callable[[], Any], str]]) -> list[str]:
    """Returns what is wrong with the errors of some calls.

    Args:
      cases: calls, and a pattern that must occur in the one-line UserError of each.
    """
    problems = []
    for number, (call, pattern) in enumerate(cases):
        try:
            call()
            problems.append(f"case {number} raises nothing; expected {pattern!r}")
        except UserError as error:
            if not re.search(pattern, str(error)) or "\n" in str(error):
                problems.append(f"case {number} raises {str(error)!r}; expected {pattern!r}")
    return problems
