"""The command line of every command: argparse with errors of one line and a manual for its help.

    @command
    def main(argv) -> int:
        parser = Parser(__doc__)
        parser.add_argument("--workdir", default="runs")
        asked = parser.parse_args(argv)

`--x VALUE` and `--x=VALUE` are the same. Nothing is abbreviated, and a flag is given once, unless
its action is "append". A mistake raises UserError, which `command` prints.
"""

import argparse
import functools
import re
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from jaxformer.errors import UserError, did_you_mean

# What argparse says -> what we say.
PHRASES = {
    "expected one argument": "needs a value",
    "ignored explicit argument": "takes no value, got",
    "invalid int value:": "must be a whole number, got",
    "invalid float value:": "must be a number, got",
    "invalid choice:": "has no choice",
}
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Parser(argparse.ArgumentParser):
    """--help prints the description, and a table of the flags if `help` says something of one.

    With `fields`, --config.FIELD is a flag for every FIELD; the answer has them as a dict `fields`.
    With `manual`, --help prints what it makes of the flags instead.
    """

    def __init__(
        self,
        description: str | None,
        fields: bool = False,
        manual: Callable[[argparse.Namespace], str] | None = None,
        **options,
    ):
        super().__init__(
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            add_help=False,
            exit_on_error=False,
            **options,
        )
        self.takes_fields, self.manual = fields, manual
        self.add_argument("--help", "-h", action="store_true")

    def parse_args(self, args: Sequence[str] | None = None, namespace=None):  # type: ignore[override]
        words = list(sys.argv[1:] if args is None else args)
        flags = [word.partition("=")[0] for word in words if word.startswith("--")]
        fields = [flag for flag in dict.fromkeys(flags) if flag.startswith("--config.")]
        for flag in fields * self.takes_fields:
            self.add_argument(flag, dest=flag)
        known = self._option_string_actions
        for word in words:
            if word.startswith("--") and (flag := word.partition("=")[0]) not in known:
                raise self._unknown(word, flag)
        for flag in flags:
            if flags.count(flag) > 1 and not isinstance(known[flag], argparse._AppendAction):
                raise UserError(f"{flag} is given {flags.count(flag)} times.")
        try:
            asked, others = self.parse_known_intermixed_args(words)
        except argparse.ArgumentError as error:
            raise UserError(f"{error.argument_name} {_in_our_words(error.message)}.") from None
        if others:
            raise self._unknown(others[0], others[0])
        if asked.help:
            print(self.manual(asked) if self.manual else self.format_help().rstrip())
            sys.exit(0)
        if self.takes_fields:
            asked.fields = {f.removeprefix("--config."): vars(asked).pop(f) for f in fields}
        return asked

    def format_help(self) -> str:
        formatter = self._get_formatter()
        formatter.add_text(self.description)
        if any(action.help for action in self._actions):
            formatter.start_section("flags")
            formatter.add_arguments(self._actions)
            formatter.end_section()
        return formatter.format_help()

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}.")

    def _unknown(self, word: str, flag: str) -> UserError:
        kind = "flag" if word.startswith("-") else "word"
        flags = [action.option_strings[0] for action in self._actions if action.option_strings]
        flags = [f for f in flags if not f.startswith("--config.")]
        flags += ["--config.FIELD"] * self.takes_fields
        hint = did_you_mean(flag, flags)
        return UserError(f"unknown {kind} {word!r}.{hint} The flags are {', '.join(flags)}.")


def command(main: Callable[..., int]) -> Callable[..., int]:
    """`main` with its exit code: 2 after the one line of a mistake, 0 after --help."""

    @functools.wraps(main)
    def run(argv: Sequence[str], *more) -> int:
        try:
            return main(argv, *more)
        except SystemExit as end:
            return int(end.code or 0)
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2

    return run


def count(text: str) -> int:
    """The type of a flag that counts something."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def seconds(text: str) -> float:
    """The type of a time: "90s", "30m", "1.5h" or "2h30m"; a plain number counts minutes."""
    whole = text + "m" * text[-1:].isdecimal()
    parts = re.findall(r"(\d+\.?\d*)([smhd])", whole)
    total = sum(float(number) * UNITS[unit] for number, unit in parts)
    if whole != "".join(map("".join, parts)) or not total:
        raise argparse.ArgumentTypeError(f"must be a time such as 90s, 30m or 2h, got {text!r}")
    return total


def _in_our_words(message: str) -> str:
    for theirs, ours in PHRASES.items():
        message = message.replace(theirs, ours)
    return message
