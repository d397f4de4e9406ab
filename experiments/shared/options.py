"""The command line of the tools around run.py: --name=VALUE or --name VALUE, one line an error."""

from collections.abc import Mapping, Sequence
from typing import Any

from jaxformer.errors import UserError, did_you_mean

HELP = ("--help", "-h")


def parse(argv: Sequence[str], defaults: Mapping[str, Any], fields: bool = False) -> dict[str, Any]:
    """The values of the flags, in the types of their defaults.

    False as a default makes a switch without a value, a tuple a flag that may come several times.
    With `fields`, --config.FIELD=VALUE is gathered in "config.": {field: text}.
    """
    values: dict[str, Any] = dict(defaults) | ({"config.": {}} if fields else {})
    words = list(argv)
    while words:
        word = words.pop(0)
        flag, equals, text = word.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        is_field = fields and flag.startswith("--config.")
        if not flag.startswith("--") or not (is_field or name in defaults):
            raise _unknown(word, flag, defaults, fields)
        if not is_field and defaults[name] is False:
            if equals:
                raise UserError(f"{flag} takes no value, got {text!r}.")
            values[name] = True
            continue
        if not equals:
            if not words or words[0].startswith("--"):
                raise UserError(f"{flag} needs a value: {flag}=VALUE.")
            text = words.pop(0)
        if is_field:
            values["config."][flag.removeprefix("--config.")] = text
        elif isinstance(defaults[name], tuple):
            values[name] += (text,)
        elif isinstance(defaults[name], int):
            values[name] = _count(flag, text)
        else:
            values[name] = text
    return values


def seconds(flag: str, text: str) -> float:
    """Seconds of "90s", "30m", "1.5h" or "2h30m"; a plain number counts minutes."""
    units, total, number = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}, 0.0, ""
    for letter in text.strip() + ("m" if text.strip()[-1:].isdigit() else ""):
        if letter in units and number:
            total, number = total + _number(flag, number, text) * units[letter], ""
        else:
            number += letter
    if number or total <= 0 or total == float("inf"):
        raise _wrong_time(flag, text)
    return total


def _number(flag: str, number: str, text: str) -> float:
    try:
        value = float(number)
    except ValueError:
        raise _wrong_time(flag, text) from None
    if not value >= 0:
        raise _wrong_time(flag, text)
    return value


def _wrong_time(flag: str, text: str) -> UserError:
    return UserError(f"{flag} must be a time such as 90s, 30m or 2h, got {text!r}.")


def _count(flag: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise UserError(f"{flag} must be a whole number of at least 1, got {text!r}.")
    return int(text)


def _unknown(word: str, flag: str, defaults: Mapping[str, Any], fields: bool) -> UserError:
    flags = ["--" + name.replace("_", "-") for name in defaults]
    flags += ["--config.FIELD"] * fields + ["--help"]
    kind = "flag" if word.startswith("-") else "word"
    hint = did_you_mean(flag, flags)
    return UserError(f"unknown {kind} {word!r}.{hint} The flags are {', '.join(flags)}.")
