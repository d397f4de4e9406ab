"""The command line: both spellings of a value, types, repeated flags, one-line errors."""

import argparse
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from jaxformer.core.errors import UserError
from jaxformer.runtime.command_line import Parser, command, count, seconds


def parser(fields=False, word=None):
    result = Parser("The manual.", fields)
    result.add_argument("--paper", default="")
    result.add_argument("--seeds", type=count, default=0)
    result.add_argument("--grid", action="append", default=[])
    result.add_argument("--dry-run", action="store_true")
    result.add_argument("--rate", type=float, help=word)
    result.add_argument("--kind", choices=("exact", "limit"))
    return result


def test_both_spellings_of_a_value():
    for arguments in (["--paper=mixit", "--seeds=3"], ["--paper", "mixit", "--seeds", "3"]):
        args = parser().parse_args([*arguments, "--grid=a=1", "--grid", "b=2", "--dry-run"])
        assert (args.paper, args.seeds, args.dry_run) == ("mixit", 3, True)
        assert args.grid == ["a=1", "b=2"]


def test_flags_of_config_fields_are_gathered():
    arguments = ["--config.a.b=1", "--config.c", "(('.*', 'train'),)", "--config.d", "-1"]
    args = parser(fields=True).parse_args(arguments)
    assert args.fields == {"a.b": "1", "c": "(('.*', 'train'),)", "d": "-1"}
    assert not [name for name in vars(args) if name.startswith("--")]


def test_words_may_stand_between_flags():
    result = parser()
    result.add_argument("folders", nargs="*")
    args = result.parse_args(["a", "--paper", "x", "b", "--dry-run", "c"])
    assert args.folders == ["a", "b", "c"]


def test_wrong_flags_are_one_line_errors():
    cases = [
        (["--papr=x"], "unknown flag '--papr=x'. Did you mean '--paper'? The flags are --help, "),
        (["--papr", "x"], "unknown flag '--papr'. Did you mean '--paper'?"),
        (["--papr=x y"], "unknown flag '--papr=x y'. Did you mean '--paper'?"),
        (["--pap=x"], "unknown flag '--pap=x'. Did you mean '--paper'?"),
        (["-x"], "unknown flag '-x'"),
        (["mixit"], "unknown word 'mixit'"),
        (["--paper"], "--paper needs a value."),
        (["--paper", "--seeds=1"], "--paper needs a value."),
        (["--paper=a", "--paper", "b"], "--paper is given 2 times."),
        (["--seeds=none"], "--seeds must be a whole number of at least 1, got 'none'."),
        (["--seeds=0"], "--seeds must be a whole number of at least 1, got '0'."),
        (["--rate=fast"], "--rate must be a number, got 'fast'."),
        (["--kind=exac"], "--kind has no choice 'exac' (choose from 'exact', 'limit')."),
        (["--dry-run=yes"], "--dry-run takes no value, got 'yes'."),
        (["--config.a=1"], "unknown flag '--config.a=1'"),
    ]
    for arguments, message in cases:
        with pytest.raises(UserError) as error:
            parser().parse_args(arguments)
        assert message in str(error.value) and "\n" not in str(error.value)


def test_wrong_fields_are_one_line_errors():
    for arguments, message in (
        (["--config.a=1", "--config.a=2"], "--config.a is given 2 times."),
        (["--config.a"], "--config.a needs a value."),
        (["--confg.a=1"], "Did you mean '--config.FIELD'? The flags are --help, "),
    ):
        with pytest.raises(UserError) as error:
            parser(fields=True).parse_args(arguments)
        assert message in str(error.value)


def test_a_time_may_have_any_unit():
    times = {"90s": 90, "30m": 1800, "1.5h": 5400, "2h30m": 9000, "5": 300, "1d": 86400}
    assert {text: seconds(text) for text in times} == times
    for text in ("", "m", "-5m", "0s", "soon", "5 parsecs", "nanm", "1e999h"):
        with pytest.raises(argparse.ArgumentTypeError, match="must be a time such as 90s, 30m or"):
            seconds(text)


def test_a_command_returns_an_exit_code_and_prints_errors_in_one_line(capsys):
    @command
    def main(argv, code=0, word=None):
        parser(word=word).parse_args(argv)
        return code

    assert main([]) == 0 and main([], 5) == 5
    assert main(["--help", "--dry-run"]) == 0
    assert capsys.readouterr().out == "The manual.\n"
    assert main(["--help"], 0, "of learning") == 0
    shown = capsys.readouterr().out
    assert re.search("--rate RATE +of learning", shown)
    assert "--paper" not in shown  # a flag without a help text is described in the manual
    assert main(["--papr"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: unknown flag '--papr'") and error.count("\n") == 1


@pytest.mark.parametrize(
    "error, code, message",
    [
        (KeyboardInterrupt(), 130, "stopped by Ctrl-C."),
        (OSError(28, "No space left on device", "runs/x"), 2, "cannot use 'runs/x': No space left"),
        (IsADirectoryError(21, "Is a directory"), 2, "cannot use a file: Is a directory."),
        (MemoryError("9 TiB"), 2, "there is not enough memory. 9 TiB"),
        (RuntimeError("Unable to initialize backend 'tpu':\n no"), 2, "backend 'tpu': no"),
        (UserError("two\nlines \x1b[2J"), 2, "two lines ?[2J"),
    ],
)
def test_errors_that_end_a_command_have_one_line(capsys, error, code, message):
    @command
    def main(argv):
        raise error

    assert main([]) == code
    output = capsys.readouterr().err
    assert output.startswith("error: ") and output.count("\n") == 1 and message in output


def test_an_unexpected_error_keeps_its_traceback():
    @command
    def main(argv):
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        main([])


def test_devices_that_jax_does_not_find_are_a_one_line_error(capsys, monkeypatch):
    """JAX_PLATFORMS=cuda without its plugin makes JAX raise an AssertionError without a message."""

    def fail_as_jax_does():
        raise AssertionError

    @command
    def lists_devices(argv):
        return len(jax.devices())

    @command
    def has_a_bug(argv):
        raise AssertionError

    with monkeypatch.context() as patch:
        patch.setenv("JAX_PLATFORMS", "cuda")
        patch.setattr(jax, "devices", fail_as_jax_does)
        assert lists_devices([]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: JAX finds none of the devices of JAX_PLATFORMS=cuda")
    assert error.count("\n") == 1
    with pytest.raises(AssertionError):
        has_a_bug([])


# What prints goes on when nobody reads; a full disk behind stdout is reported.
PRINTS = """
import sys
from jaxformer.runtime.command_line import command
@command
def main(argv):
    for line in range(20_000):
        print(line)
    print("worked", file=sys.stderr)
    return 0
sys.exit(main([]))
"""


@pytest.mark.parametrize(
    "shell, code, stderr",
    [
        ("{} | head -1", 0, "worked\n"),
        ("{} >&-", 0, "worked\n"),
        ("{} >/dev/full", 2, "worked\nerror: cannot print: No space left on device.\n"),
    ],
)
def test_a_command_ends_well_if_its_output_is_not_read(shell, code, stderr):
    arguments = shell.format(f"{shlex.quote(sys.executable)} -c {shlex.quote(PRINTS)}")
    shown = ["bash", "-o", "pipefail", "-c", arguments]
    root = str(Path(__file__).parents[2])
    environment = os.environ | {"PYTHONPATH": root}
    done = subprocess.run(shown, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, stderr)


@pytest.mark.parametrize(
    "imports", ["import experiments", "import sys; sys.argv[0] = '-m'; import theory"]
)
def test_an_interrupt_while_importing_prints_one_line(imports):
    code = f"{imports}\nraise KeyboardInterrupt"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    arguments = [sys.executable, "-c", code]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "error: stopped by Ctrl-C.\n")
