"""A command that is started before the environment is active says how to activate it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jaxformer.runtime.command_line import activation_hint

ROOT = Path(__file__).parents[2]
COMMANDS = sorted(file.name for file in (ROOT / "experiments").glob("[a-z]*.py"))


def run(*words, root=ROOT, **environment):
    """In a Python that has the standard library alone."""
    kept = {"PATH": os.environ["PATH"]} | environment
    words = [sys.executable, "-S", *words]
    done = subprocess.run(words, cwd=root, env=kept, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


LINE = activation_hint("jax") + "\n"
OF_A_CLONE = ("experiments/run.py", "experiments/cli/activate.py", "theory/__init__.py")
OF_A_CLONE += ("jaxformer/__init__.py", "jaxformer/core/__init__.py", "jaxformer/core/errors.py")
OF_A_CLONE += ("jaxformer/runtime/__init__.py", "jaxformer/runtime/command_line.py")
MODULES = ("theory.advise", "theory.phase_map")
MODULES += ("jaxformer.models.export", "jaxformer.models.pretrained.tiny")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_without_its_environment_is_one_line(command):
    code, said = run(f"experiments/{command}", "--help")
    assert (code, said) == (1, LINE)


def test_so_it_is_where_the_clone_itself_is_found():
    assert run("experiments/look.py", PYTHONPATH=str(ROOT)) == (1, LINE)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_that_is_a_command_says_so_too(module):
    code, said = run("-m", module, PYTHONPATH=str(ROOT))
    assert (code, re.sub("numpy", "jax", said)) == (1, LINE)


def test_a_clone_that_has_no_environment_yet_is_told_how_to_make_it(tmp_path):
    """Else the line names a file that does not exist."""
    for file in OF_A_CLONE:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    advise = ("-m", "theory.advise")
    for first in ("`make venv`, then ", ""):
        line = f"error: this python has no jax; {first}`source .venv/bin/activate` first.\n"
        assert run("experiments/run.py", root=tmp_path) == (1, line)
        found = run(*advise, root=tmp_path, PYTHONPATH=str(tmp_path))
        assert found == (1, line.replace("jax", "numpy"))
        (tmp_path / ".venv").mkdir(exist_ok=True)


def test_a_library_that_is_imported_keeps_its_own_words():
    code, said = run("-c", "import jaxformer; import jaxformer.models; import theory")
    assert (code, said) == (0, "")
