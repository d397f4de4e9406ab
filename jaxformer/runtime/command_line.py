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
import contextlib
import functools
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from jaxformer.core.errors import UserError, did_you_mean, one_line

# What argparse says -> what we say.
PHRASES = {
    "expected one argument": "needs a value",
    "ignored explicit argument": "takes no value, got",
    "invalid int value:": "must be a whole number, got",
    "invalid float value:": "must be a number, got",
    "invalid choice:": "has no choice",
}
# How a RuntimeError begins that says what this machine lacks.
OF_THE_MACHINE = ("Unable to initialize backend", "RESOURCE_EXHAUSTED", "Unknown backend")
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
        if {"--help", "-h"} & {*words}:
            for action in self._actions:  # who asks for the manual need not know the rest
                action.required = False
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
    """`main` with its exit code; what goes wrong outside of it is one line.

    0    done; also after --help, and when nobody reads what is printed (`| head`)
    1    some part of the work failed, which the command names
    2    a mistake of the caller, a full disk, a file that cannot be read or written, no memory
    130  Ctrl-C where nothing is saved; 128 + the signal where a run was saved and goes on later
    """

    @functools.wraps(main)
    def run(argv: Sequence[str], *more) -> int:
        _open_what_is_closed()
        out = Output(sys.stdout)
        try:
            with contextlib.redirect_stdout(out):  # type: ignore[type-var]
                code = main(argv, *more)
        except SystemExit as end:
            code = int(end.code or 0)
        except UserError as error:
            code = _fails(one_line(error, 6000), error.exit_code)
        except KeyboardInterrupt:
            code = _fails("stopped by Ctrl-C.", 130)
        except OSError as error:
            code = _fails(in_words(error))
        except MemoryError as error:
            code = _fails(f"there is not enough memory. {one_line(error, 200)}")
        except RuntimeError as error:  # of JAX, which has no kinds of its own for these
            said = one_line(error, 300)
            if not said.startswith(OF_THE_MACHINE):
                raise
            code = _fails(said)
        except AssertionError as error:
            if not _is_about_devices(error):
                raise
            asked = os.environ.get("JAX_PLATFORMS", "")
            code = _fails(
                f"JAX finds none of the devices that JAX_PLATFORMS={asked} asks for; unset it, or "
                "say JAX_PLATFORMS=cpu."
            )
        out.flush()
        if out.problem:
            code = code or _fails(f"cannot print: {out.problem}.")
        return code

    return run


def _is_about_devices(error: AssertionError) -> bool:
    """Where a platform is known and its plugin is missing, JAX asserts in place of a message."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_globals.get("__name__") == "jax._src.xla_bridge"


class Output:
    """A stream that never ends a command: what cannot be printed is lost, and the work goes on.

    `problem` says why something was not printed, unless the reader has gone on purpose.
    """

    def __init__(self, stream):
        self.stream, self.problem = stream, ""

    def __getattr__(self, name: str):
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        self._try("write", text)
        return len(text)

    def flush(self) -> None:
        self._try("flush")

    def _try(self, name: str, *words) -> None:
        try:
            if self.stream is not None:
                getattr(self.stream, name)(*words)
        except OSError as error:
            if not isinstance(error, BrokenPipeError):
                self.problem = error.strerror or type(error).__name__
            with contextlib.suppress(OSError, ValueError):  # what is buffered has a place to go
                os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
        except UnicodeEncodeError:  # a terminal that has not all letters
            self._try(name, *(word.encode("ascii", "replace").decode() for word in words))


def in_words(error: OSError) -> str:
    """ "cannot use runs/x: No space left on device." """
    file = f" {os.fsdecode(error.filename)!r}" if isinstance(error.filename, str | bytes) else ""
    return one_line(f"cannot use{file or ' a file'}: {error.strerror or error}.")


def how_to_activate(package: str) -> str:
    """The line of a command whose Python lacks a package: how to find the one that has it."""
    made = (Path(__file__).parents[2] / ".venv").exists()
    first = "" if made else "`make venv`, then "
    return f"error: this python has no {package}; {first}`source .venv/bin/activate` first."


def check_environment(package: str) -> None:
    """Ends `python -m ..` with that line; of a library that is imported nothing is asked."""
    if sys.argv[:1] == ["-m"] and importlib.util.find_spec(package) is None:
        raise SystemExit(how_to_activate(package))


def say_interrupts() -> None:
    """From here on a Ctrl-C outside of a command, while it imports, is one line, not a traceback.

    `experiments` calls it first of all; a library has no business to.
    """
    before = sys.excepthook

    def hook(kind, error, trace):
        if not issubclass(kind, KeyboardInterrupt):
            return before(kind, error, trace)
        print("error: stopped by Ctrl-C.", file=sys.stderr, flush=True)
        os._exit(130)

    sys.excepthook = hook


def _fails(words: str, code: int = 2) -> int:
    with contextlib.suppress(OSError, AttributeError):  # nobody listens
        print(f"error: {words}", file=sys.stderr, flush=True)
    return code


def _open_what_is_closed() -> None:
    """A file opened in place of a closed stream would take what is printed."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number


def count(text: str) -> int:
    """The type of a flag that counts something."""
    if not (text.isascii() and text.isdecimal() and len(text) < 10) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def seconds(text: str) -> float:
    """The type of a time: "90s", "30m", "1.5h" or "2h30m"; a plain number counts minutes."""
    whole = text + "m" * text[-1:].isdecimal()
    parts = re.findall(r"(\d+\.?\d*)([smhd])", whole)
    total = sum(float(number) * UNITS[unit] for number, unit in parts)
    if whole != "".join(map("".join, parts)) or not 0 < total < 1e10:
        raise argparse.ArgumentTypeError(f"must be a time such as 90s, 30m or 2h, got {text!r}")
    return total


def _in_our_words(message: str) -> str:
    for theirs, ours in PHRASES.items():
        message = message.replace(theirs, ours)
    return message
