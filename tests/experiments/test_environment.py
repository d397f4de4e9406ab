"""A command that is started before the environment is active says how to activate it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMANDS = sorted(file.name for file in (ROOT / "experiments").glob("[a-z]*.py"))


def run(*words, **environment):
    """In a Python that has the standard library alone."""
    kept = {"PATH": os.environ["PATH"]} | environment
    words = [sys.executable, "-S", *words]
    done = subprocess.run(words, cwd=ROOT, env=kept, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_without_its_environment_is_one_line(command):
    code, said = run(f"experiments/{command}", "--help")
    assert (code, said.count("\n")) == (1, 1) and "`source .venv/bin/activate` first" in said


def test_so_it_is_where_the_clone_itself_is_found():
    for words in (["experiments/look.py"], ["-m", "theory.advise"], ["-m", "theory.phase_map"]):
        code, said = run(*words, PYTHONPATH=str(ROOT))
        assert (code, said.count("\n")) == (1, 1) and "`source .venv/bin/activate` first" in said
