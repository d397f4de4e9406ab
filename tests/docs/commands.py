"""Checks a command of a page: its flags are parsed and its config is built; nothing runs."""

import importlib
import os
import re
import shlex
import tomllib
from pathlib import Path

from experiments import run
from experiments.cli import completion, console, flags
from jaxformer.runtime.command_line import Parser
from tests.docs.blocks import ROOT

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
TARGETS = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
# Commands whose main is a script; only the existence of the file is tested.
SCRIPTS = ("benchmarks.", "tests.", "docs.", "http.")
SHELL = ("source", "printf", "cd", "eval")


class Parsed(BaseException):
    """Raised once the flags of a command are parsed, so that the command does not run."""


def check(line: str, monkeypatch) -> None:
    """Raises an error if a line for the shell is wrong."""
    words = shlex.split(line.partition(" > ")[0], comments=True)
    while re.match(r"[A-Z_]+=", words[0]):
        words.pop(0)
    if words[0] == "srun":
        programs = ("python", "jaxformer")
        words = words[next(i for i, word in enumerate(words) if word.endswith(programs)) :]
    what, *rest = words
    if what.endswith("python"):
        _python(rest, monkeypatch)
    elif Path(what).name == "jaxformer":
        _jaxformer(rest, monkeypatch)
    elif what == "make":
        assert {*rest} <= {*TARGETS}, f"the Makefile has no target {rest}"
    elif what == "pip":
        extras = {name for found in re.findall(r"\[([\w,]+)\]", line) for name in found.split(",")}
        assert rest[0] == "install" and extras <= {*EXTRAS}, f"no extra {extras - {*EXTRAS}}"
    elif what == "cp":
        assert (ROOT / rest[0]).exists(), f"no file {rest[0]}"
    else:
        assert what in SHELL, f"nobody knows the command {what!r}"


def _jaxformer(words: list[str], monkeypatch) -> None:
    """Checks `jaxformer NAME WORDS`, whose first word may be the name of a config."""
    if not words or words[0] in ("--help", "configs", "completion", "NAME"):
        return
    program, rest = console.PROGRAMS[words[0]], words[1:]
    if not rest:  # a sentence that names the command
        return
    if program.first_flag and rest and not rest[0].startswith("-"):
        is_config = program.first_flag == "--config"
        value = completion.config_path(rest[0]) if is_config else rest[0]
        rest = [f"{program.first_flag}={value}", *rest[1:]]
    _python(["-m", program.module, *rest], monkeypatch)


def _python(argv: list[str], monkeypatch) -> None:
    if argv[:2] == ["-m", "jaxformer"]:
        return _jaxformer(argv[2:], monkeypatch)
    if argv[0] == "-m":
        name, argv = argv[1], argv[2:]
        assert name.startswith(SCRIPTS) or importlib.util.find_spec(name), f"no module {name}"
    else:
        assert (ROOT / argv[0]).is_file(), f"no file {argv[0]}"
        name, argv = argv[0].removesuffix(".py").replace("/", "."), argv[1:]
    if name.startswith(SCRIPTS):
        return
    if name == "experiments.run" and "--help" not in argv:
        run.parse(argv)
        return
    module = importlib.import_module(name)
    whole = Parser.parse_args

    def parse(self, *arguments, **options):
        raise Parsed(whole(self, *arguments, **options))

    with monkeypatch.context() as patch:
        patch.setattr(Parser, "parse_args", parse)
        patch.setattr(os, "environ", os.environ.copy())
        try:
            code = module.main(argv)
        except Parsed as parsed:
            _files(parsed.args[0])
        else:
            assert code == 0 and "--help" in argv, "the flags are not understood"


def _files(arguments) -> None:
    """Checks that the config and the sweep file of some flags exist."""
    config = str(getattr(arguments, "config", "") or "")
    if config.startswith("configs/"):
        flags.load_config(re.sub(r"\{(\w+)[^}]*\}", r"\1", config))
    file = str(getattr(arguments, "file", ""))
    assert not file.startswith("configs/") or (ROOT / file).is_file(), f"no file {file}"
