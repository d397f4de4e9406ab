"""The command line of all commands: argparse with one-line errors, and a manual as --help.

    @command
    def main(argv) -> int:
        parser = Parser(__doc__)
        parser.add_argument("--workdir", default="runs")
        arguments = parser.parse_args(argv)

`--x VALUE` and `--x=VALUE` are the same. Flags cannot be abbreviated. A flag is given once, unless
its action is "append". A wrong flag raises UserError, which `command` prints.
"""

import argparse
import contextlib
import functools
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from jaxformer.core.errors import UserError, did_you_mean, name_in_python, one_line

# {phrase of argparse: its replacement in messages}
PHRASES = {
    "expected one argument": "needs a value",
    "ignored explicit argument": "takes no value, got",
    "invalid int value:": "must be a whole number, got",
    "invalid float value:": "must be a number, got",
    "invalid choice:": "has no choice",
}
# Beginnings of RuntimeErrors by which JAX reports missing devices or memory.
MACHINE_ERRORS = ("Unable to initialize backend", "RESOURCE_EXHAUSTED", "Unknown backend")
NO_FIELDS = ("workdir",)  # settings of errors that no config has
SECONDS_OF_UNIT = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Parser(argparse.ArgumentParser):
    """An argument parser whose --help prints the description and a table of flags with a help text.

    Args:
        description: the text of --help.
        fields: whether --config.FIELD is a flag for every FIELD. `parse_args` returns them as the
            dict `fields`.
        manual: a function of the parsed arguments; --help prints its result instead, if given.
        options: further arguments of `argparse.ArgumentParser`.

    Attributes:
        flags: the argparse actions, in the order in which they were added.
    """

    latest: ClassVar["Parser | None"] = None  # of the command that runs in this process

    def __init__(
        self,
        description: str | None,
        fields: bool = False,
        manual: Callable[[argparse.Namespace], str] | None = None,
        **options,
    ):
        Parser.latest = self
        self.takes_fields, self.manual = fields, manual
        self.flags: list[argparse.Action] = []
        self.repeatable: set[str] = set()  # flags that may be given several times
        super().__init__(
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            add_help=False,
            exit_on_error=False,
            **options,
        )
        self.add_argument("--help", "-h", action="store_true")

    def add_argument(self, *names: str, **options: Any) -> argparse.Action:  # type: ignore[override]
        flag = super().add_argument(*names, **options)
        self.flags.append(flag)
        if options.get("action") == "append":
            self.repeatable.update(names)
        return flag

    def parse_args(self, args: Sequence[str] | None = None, namespace=None):  # type: ignore[override]
        argv = list(sys.argv[1:] if args is None else args)
        given_flags = [word.partition("=")[0] for word in argv if word.startswith("--")]
        fields = [name for name in dict.fromkeys(given_flags) if name.startswith("--config.")]
        if self.takes_fields:
            for name in fields:
                self.add_argument(name, dest=name)
        self._check_flags(argv, given_flags)
        if {"--help", "-h"} & {*argv}:
            for flag in self.flags:  # --help works without required flags
                flag.required = False
        try:
            arguments, unknown = self.parse_known_intermixed_args(argv)
        except argparse.ArgumentError as error:
            raise UserError(f"{error.argument_name} {_rephrase(error.message)}.") from None
        if unknown:
            raise self._unknown_error(unknown[0])
        if arguments.help:
            print(self.manual(arguments) if self.manual else self.format_help().rstrip())
            sys.exit(0)
        if self.takes_fields:
            values = vars(arguments)
            arguments.fields = {name.removeprefix("--config."): values.pop(name) for name in fields}
        return arguments

    def flag_of(self, field: str) -> str:
        """Returns the flag that sets a field of a config, or the name of the field without one."""
        short = f"--{name_in_python(field).rpartition('.')[2].replace('_', '-')}"
        if short in {name for flag in self.flags for name in flag.option_strings}:
            return short
        if self.takes_fields and field not in NO_FIELDS:
            return f"--config.{field}"
        return name_in_python(field)

    def format_help(self) -> str:
        formatter = self.formatter_class(prog=self.prog)
        formatter.add_text(self.description)
        if described := [flag for flag in self.flags if flag.help]:
            formatter.start_section("flags")
            formatter.add_arguments(described)
            formatter.end_section()
        return formatter.format_help()

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}.")

    def _check_flags(self, argv: list[str], given_flags: list[str]) -> None:
        """Raises UserError if a flag is unknown or given too often."""
        names = {name for flag in self.flags for name in flag.option_strings}
        for word in argv:
            if word.startswith("--") and word.partition("=")[0] not in names:
                raise self._unknown_error(word)
        for name in given_flags:
            if given_flags.count(name) > 1 and name not in self.repeatable:
                raise UserError(f"{name} is given {given_flags.count(name)} times.")

    def _unknown_error(self, word: str) -> UserError:
        """Returns the error for an argument that is neither a flag nor the value of a flag."""
        kind = "flag" if word.startswith("-") else "word"
        names = [flag.option_strings[0] for flag in self.flags if flag.option_strings]
        names = [name for name in names if not name.startswith("--config.")]
        if self.takes_fields:
            names.append("--config.FIELD")
        hint = did_you_mean(word.partition("=")[0], names)
        return UserError(f"unknown {kind} {word!r}.{hint} The flags are {', '.join(names)}.")


def command(main: Callable[..., int]) -> Callable[..., int]:
    """Decorates the main function of a command: errors become one line and an exit code.

    0    success; also after --help, and when the reader of stdout has closed (`| head`)
    1    a part of the work failed; the command prints which
    2    wrong input, a full disk, a file that cannot be read or written, too little memory
    130  Ctrl-C in a command that saves nothing
    128 + the number of the signal, if a run was saved and can resume
    """

    @functools.wraps(main)
    def run(argv: Sequence[str], *more) -> int:
        _open_closed_streams()
        out = Output(sys.stdout)
        try:
            with contextlib.redirect_stdout(out):  # type: ignore[type-var]
                code = main(argv, *more)
        except SystemExit as end:
            code = int(end.code or 0)
        except UserError as error:
            name_of = Parser.latest.flag_of if Parser.latest else name_in_python
            code = _print_error(one_line(error.named_by(name_of), 6000), error.exit_code)
        except KeyboardInterrupt:
            code = _print_error("stopped by Ctrl-C.", 130)
        except OSError as error:
            code = _print_error(os_error_text(error))
        except MemoryError as error:
            code = _print_error(f"there is not enough memory. {one_line(error, 200)}")
        except RuntimeError as error:  # JAX has no error class for missing devices or memory
            text = one_line(error, 300)
            if not text.startswith(MACHINE_ERRORS):
                raise
            code = _print_error(text)
        except AssertionError as error:
            if str(error) or not _devices_are_missing():
                raise
            platforms = os.environ.get("JAX_PLATFORMS", "")
            code = _print_error(
                f"JAX finds none of the devices of JAX_PLATFORMS={platforms}; unset it, or set "
                "JAX_PLATFORMS=cpu."
            )
        out.flush()
        if out.problem and not code:
            code = _print_error(f"cannot print: {out.problem}.")
        return code

    return run


def _devices_are_missing() -> bool:
    """Tests whether JAX fails to list its devices.

    JAX raises an AssertionError without a message if the plugin of a platform is not installed.
    """
    import jax

    try:
        jax.devices()
    except (AssertionError, RuntimeError):
        return True
    return False


class Output:
    """A text stream that discards what it cannot print, so that the command continues.

    Attributes:
        problem: why output was lost; empty if the reader closed the pipe.
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

    def _try(self, method: str, *texts: str) -> None:
        try:
            if self.stream is not None:
                getattr(self.stream, method)(*texts)
        except OSError as error:
            if not isinstance(error, BrokenPipeError):
                self.problem = error.strerror or type(error).__name__
            with contextlib.suppress(OSError, ValueError):  # buffered text goes to /dev/null
                os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
        except UnicodeEncodeError:  # the terminal's encoding lacks a character
            self._try(method, *(text.encode("ascii", "replace").decode() for text in texts))


def os_error_text(error: OSError) -> str:
    """Returns a line such as "cannot use 'runs/x': No space left on device."."""
    file = f" {os.fsdecode(error.filename)!r}" if isinstance(error.filename, str | bytes) else ""
    return one_line(f"cannot use{file or ' a file'}: {error.strerror or error}.")


def activation_hint(package: str) -> str:
    """Returns an error line with the command that activates .venv, for a missing package."""
    has_environment = (Path(__file__).parents[2] / ".venv").exists()
    creation = "" if has_environment else "`make venv`, then "
    return f"error: this python has no {package}; {creation}`source .venv/bin/activate` first."


def require_package(package: str) -> None:
    """Ends `python -m ..` with the activation hint if a package is missing."""
    # During the imports of `python -m`, sys.argv[0] is "-m".
    if sys.argv[:1] == ["-m"] and importlib.util.find_spec(package) is None:
        raise SystemExit(activation_hint(package))


def shorten_interrupts() -> None:
    """Makes a Ctrl-C outside of `command`, such as during imports, end with one line.

    It replaces `sys.excepthook`, so only packages of commands call it. A library must not.
    """
    previous_hook = sys.excepthook

    def hook(kind, error, trace):
        if not issubclass(kind, KeyboardInterrupt):
            return previous_hook(kind, error, trace)
        print("error: stopped by Ctrl-C.", file=sys.stderr, flush=True)
        os._exit(130)

    sys.excepthook = hook


def _print_error(text: str, code: int = 2) -> int:
    with contextlib.suppress(OSError, AttributeError):  # stderr may be closed
        print(f"error: {text}", file=sys.stderr, flush=True)
    return code


def _open_closed_streams() -> None:
    """Opens closed standard streams; otherwise the next opened file would receive their output."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number


def count(text: str) -> int:
    """Parses the value of a flag that counts: a whole number of at least 1."""
    if not (text.isascii() and text.isdecimal() and len(text) < 10) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def seconds(text: str) -> float:
    """Parses a duration such as "90s", "30m", "1.5h" or "2h30m"; a plain number counts minutes."""
    with_unit = f"{text}m" if text[-1:].isdecimal() else text
    parts = re.findall(r"(\d+\.?\d*)([smhd])", with_unit)
    total = sum(float(number) * SECONDS_OF_UNIT[unit] for number, unit in parts)
    if with_unit != "".join(map("".join, parts)) or not 0 < total < 1e10:
        raise argparse.ArgumentTypeError(f"must be a time such as 90s, 30m or 2h, got {text!r}")
    return total


def _rephrase(message: str) -> str:
    for phrase, replacement in PHRASES.items():
        message = message.replace(phrase, replacement)
    return message
