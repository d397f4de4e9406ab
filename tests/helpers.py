"""Helpers that many tests share."""

from collections.abc import Callable, Iterable


def failures(check: Callable, cases: Iterable) -> list[str]:
    """Returns a line for each case that fails a check.

    Args:
        check: a function that raises an exception if its case is wrong.
        cases: the arguments of the check: a tuple, or one object that is not a tuple.
    """
    lines = []
    for case in cases:
        arguments = case if isinstance(case, tuple) else (case,)
        try:
            check(*arguments)
        except Exception as error:
            lines.append(f"{case!s:.200}: {type(error).__name__}: {error}")
    return lines
