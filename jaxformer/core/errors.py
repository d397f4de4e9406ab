"""What a user did wrong, said in one line: what was expected, what came, what is possible."""

import difflib
import math
from collections.abc import Iterable


class UserError(ValueError):
    """A mistake of the caller. Commands print it without a traceback; a library call raises it."""

    exit_code = 2  # of the command that it ends


class NotFiniteError(UserError):
    """Reports a network whose numbers are nan or infinity. What is valid has been written."""

    exit_code = 1


def one_line(words: object, most: int = 500) -> str:
    """What somebody else wrote as one line that a terminal may print: no breaks, no controls."""
    line = " ".join(str(words).split())
    line = "".join(sign if sign.isprintable() else "?" for sign in line)
    return line if len(line) <= most else f"{line[:most]}.."


def check_range(name: str, value: float, low: float, high: float = math.inf) -> None:
    """Raises unless the number is finite and low <= value <= high."""
    if not (low <= value <= high and math.isfinite(value)):
        is_above = value > high or value == math.inf
        bound = f"at most {high:,}" if is_above else f"at least {low:,}"
        raise UserError(f"{name} must be {bound}, got {value}.")


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """ " Did you mean 'query'?" when a choice is close to `name`, else the empty string."""
    close = difflib.get_close_matches(str(name), [str(c) for c in choices], n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""


def unknown(kind: str, name: str, choices: Iterable[str]) -> UserError:
    """The error for a name that is not among its choices."""
    choices = sorted(str(c) for c in choices)
    hint = did_you_mean(name, choices)
    return UserError(f"unknown {kind} {name!r}.{hint} The choices are: {', '.join(choices)}.")


def check_choice(kind: str, name: str, choices: Iterable[str]) -> None:
    """Raises unless the name is among its choices."""
    if name not in choices:
        raise unknown(kind, name, choices)
