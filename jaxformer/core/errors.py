"""Errors for users, in one line: what was expected, what was given, what is possible."""

import difflib
import math
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from numbers import Integral, Real
from pathlib import Path
from typing import Any

# {declared type of a field: (its name in errors, the class of accepted values)}
FIELD_TYPES = {
    int: ("a whole number", Integral),
    float: ("a number", Real),
    bool: ("True or False", bool),
    str: ("a string", str),
}


# Around the name of a setting in a message: two characters for private use, which no text has.
_OPEN, _CLOSE = "\ue000", "\ue001"
_SETTING = re.compile(f"{_OPEN}([^{_OPEN}{_CLOSE}]*){_CLOSE}")


def setting(field: str) -> str:
    """Returns a setting's name for the message of a `UserError`, such as setting("optim.warmup").

    The caller names it in its own language: `warmup` in Python, `--config.optim.warmup` or
    `--warmup` on a command line. A name without a dot, such as "workdir", is an argument of both.
    """
    return f"{_OPEN}{field}{_CLOSE}"


def name_in_python(field: str) -> str:
    """Returns the argument of `jaxformer.train` that is this field of a config.

    Fields of `devices` keep their section: `data` alone is another argument.
    """
    if field.startswith("devices."):
        return field
    return {"n_seeds": "seeds"}.get(field, field.rpartition(".")[2])


class UserError(ValueError):
    """Wrong input. Commands print it without a traceback.

    Its text is one line, and safe for a terminal: names in it may come from any file, and a tensor
    may be called "\\x1b[2J". It names settings (`setting`) as arguments of Python.

    Attributes:
        field: the first setting that the message names, such as "optim.warmup", or "".
    """

    exit_code = 2  # of a command that ends with this error

    def __init__(self, message: object = ""):
        self._message = str(message)
        found = _SETTING.search(self._message)
        self.field = found[1] if found else ""
        super().__init__(self.named_by(name_in_python))

    def named_by(self, name_of: Callable[[str], str]) -> str:
        """Returns the message with other names of its settings.

        Args:
            name_of: returns the name of a field, such as "--config.optim.warmup".
        """
        return _printable(_SETTING.sub(lambda found: name_of(found[1]), self._message))


class NotFiniteError(UserError):
    """Nan or infinite numbers in a network. The results before them have been written."""

    exit_code = 1


def one_line(text: object, max_length: int = 500) -> str:
    """Returns any text as one line without control characters, safe for a terminal."""
    line = _printable(" ".join(str(text).split()))
    return line if len(line) <= max_length else f"{line[:max_length]}.."


def _printable(text: str) -> str:
    """Replaces control characters, also those that end a line."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text)


def check_range(name: str, value: float, low: float, high: float = math.inf) -> None:
    """Raises a UserError unless the number is finite and low <= value <= high.

    Args:
        name: the name of the number in the message, such as "--points".
        value: the number.
        low: the smallest accepted number.
        high: the largest accepted number.
    """
    try:
        is_in_range = low <= value <= high and math.isfinite(value)
    except TypeError:
        raise UserError(f"{name} must be a number, got {one_line(repr(value), 60)}.") from None
    if not is_in_range:
        is_above = value > high or value == math.inf
        bound = f"at most {high:,}" if is_above else f"at least {low:,}"
        raise UserError(f"{name} must be {bound}, got {value}.")


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """Returns " Did you mean 'query'?" if a choice is close to `name`, otherwise ""."""
    close = difflib.get_close_matches(str(name), [str(c) for c in choices], n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""


def unknown(kind: str, name: str, choices: Iterable[str]) -> UserError:
    """Returns the error for a name that is not among its choices.

    Args:
        kind: the kind of thing that is named, such as "task".
        name: the unknown name.
        choices: the accepted names; the message has them all and the closest one.
    """
    choices = sorted(str(c) for c in choices)
    hint = did_you_mean(name, choices)
    return UserError(f"unknown {kind} {name!r}.{hint} The choices are: {', '.join(choices)}.")


def check_choice(kind: str, name: str, choices: Iterable[str]) -> None:
    """Raises a UserError unless the name is among its choices."""
    if name not in choices:
        raise unknown(kind, name, choices)


def check_type(name: str, value: Any, declared: Any) -> None:
    """Raises a UserError if a number, a boolean or a string does not have the declared type.

    Args:
        name: the name of the value in the message.
        value: the value. A boolean is no number, and a whole number is a valid float.
        declared: the type. Types that FIELD_TYPES lacks are not checked.
    """
    expected, accepted = FIELD_TYPES.get(declared, ("", object))
    is_boolean = isinstance(value, bool) and accepted in (Integral, Real)
    if is_boolean or not isinstance(value, accepted):
        raise UserError(f"{name} must be {expected}, got {one_line(repr(value), 60)}.")


def check_types(dataclass: type, values: Mapping[str, Any]) -> None:
    """Raises a UserError if a value does not have the type of the field with its name."""
    for field in fields(dataclass):
        if field.name in values:
            check_type(f"{dataclass.__name__}.{field.name}", values[field.name], field.type)


def is_users(value: Any) -> bool:
    """Whether the class of a task or a model is not one of jaxformer's."""
    return type(value).__module__.split(".")[0] != "jaxformer"


@contextmanager
def users_code(what: str, is_users: bool = True) -> Iterator[None]:
    """Turns an exception of a user's code into a UserError that names the line which raised it.

    Args:
        what: the function that is called, such as "Mine.example".
        is_users: False leaves exceptions alone, so that one of our own keeps its traceback.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if not is_users:
            raise
        text = one_line(error, 200)
        raise UserError(
            f"{what} raises {type(error).__name__}{text and f': {text}'} ({_place(error)})."
        ) from error


def _place(error: BaseException) -> str:
    """Returns "task.py, line 7": the last line of an installed package's caller."""
    frames = traceback.extract_tb(error.__traceback__)
    package = str(Path(__file__).parent.parent)
    own = [
        f for f in frames if not f.filename.startswith(package) and "-packages" not in f.filename
    ]
    frame = (own or frames)[-1]
    return f"{Path(frame.filename).name}, line {frame.lineno}"
