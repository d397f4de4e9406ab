"""The command `jaxformer`: one name for all programs. A program is imported only to run it."""

import ast
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.cli import completion
from jaxformer import __version__
from jaxformer.core.errors import UserError, did_you_mean
from jaxformer.runtime.command_line import command

ROOT = Path(__file__).parents[2]
HELP_FILE = Path(__file__).with_name("help.json")  # written by docs/generate.py


class Program(NamedTuple):
    """A program of `jaxformer NAME`."""

    module: str
    summary: str
    first_flag: str = ""  # the flag whose value may be given as the first word


PROGRAMS = {
    "run": Program("experiments.run", "train or measure what a config defines", "--config"),
    "train": Program("experiments.run", "the same as run", "--config"),
    "sweep": Program("experiments.sweep", "run a grid over config fields", "--config"),
    "litmus": Program("experiments.litmus", "test whether a task needs attention", "--task"),
    "anatomy": Program("experiments.anatomy", "find out what each part of a transformer does"),
    "atlas": Program("experiments.atlas", "compare what each part does over many tasks"),
    "look": Program("experiments.look", "show the attention of a run"),
    "compare": Program("experiments.compare", "compare runs, with intervals"),
    "cut": Program("experiments.cut", "reduce the rank of matrices of a published model"),
    "advise": Program("theory.advise", "predict whether a transformer will train"),
    "phase-map": Program("theory.phase_map", "draw the similarity after one attention layer"),
    "trainability": Program("theory.trainability", "draw where a deep transformer can train"),
    "prepare": Program("experiments.prepare", "turn text into token ids", "--dataset"),
    "generate": Program("experiments.generate", "continue a prompt"),
    "export": Program("experiments.export", "write a run as a Hugging Face folder"),
    "reproduce": Program("experiments.reproduce", "run the tables of the five papers", "--paper"),
    "confirm": Program("experiments.confirm", "confirm verdicts on fresh seeds"),
    "ladder": Program("experiments.ladder", "follow effects as networks grow"),
    "report": Program("experiments.report", "write tables and pages from records and runs"),
    "demo": Program("experiments.demo", "show one result of each paper in minutes"),
}
USAGE = """What does each part of a transformer do?

    jaxformer run mixit/retrieval:variant=frozen_qk,scale=tiny
    jaxformer NAME --help

{programs}
  completion   print the completion of bash, zsh or fish: eval "$(jaxformer completion bash)"
  configs      list the configs of run, train and sweep; `configs WORD` those with a word
"""


@command
def main(argv: Sequence[str]) -> int:
    name, *arguments = argv or ["--help"]
    if name in ("--help", "-h", "help"):
        print(usage())
    elif name == "--version":
        print(f"jaxformer {__version__}")
    elif name == "configs":
        print("\n".join(list_configs(*arguments)))
    elif name == "completion":
        print(completion.script(arguments[0] if arguments else ""))
    elif name == "complete":  # called by the shell
        print("\n".join(completion.complete(" ".join(arguments), PROGRAMS)))
    elif name in PROGRAMS and arguments in (["--help"], ["-h"]):
        print(json.loads(HELP_FILE.read_text())[name])
    elif name in PROGRAMS:
        return run_program(PROGRAMS[name], arguments)
    else:
        choices = ", ".join(PROGRAMS)
        raise UserError(
            f"unknown command {name!r}.{did_you_mean(name, PROGRAMS)} The commands are {choices}."
        )
    return 0


def run_program(program: Program, arguments: Sequence[str]) -> int:
    """Runs a program with the arguments after its name; returns its exit code."""
    arguments = list(arguments)
    if program.first_flag and arguments and not arguments[0].startswith("-"):
        value = arguments[0]
        if program.first_flag == "--config":
            value = completion.config_path(value)
        arguments[0] = f"{program.first_flag}={value}"
    module = importlib.import_module(program.module)
    return module.main(arguments)


def usage() -> str:
    """Returns the text of --help."""
    lines = (f"  {name:12} {program.summary}" for name, program in PROGRAMS.items())
    return USAGE.format(programs="\n".join(lines)).rstrip()


def list_configs(*parts: str) -> list[str]:
    """Returns a line for each config with its name and the first sentence of its docstring.

    Args:
        parts: only the lines that contain all of these are returned.
    """
    lines = []
    for name in completion.config_names():
        module = ast.parse((ROOT / f"configs/{name}.py").read_text())
        sentence, _, _ = (ast.get_docstring(module) or "").partition("\n")
        lines.append(f"{name:40} {sentence}")
    lines = [line for line in lines if all(part.lower() in line.lower() for part in parts)]
    if not lines:
        hint = did_you_mean(parts[0], completion.config_names())
        raise UserError(f"no config with {' and '.join(map(repr, parts))}.{hint}")
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
