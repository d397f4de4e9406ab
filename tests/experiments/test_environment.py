"""A command prints how to activate the environment, unless it finds JAX and its own clone."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from jaxformer.runtime.command_line import activation_hint

ROOT = Path(__file__).parents[2]
COMMANDS = sorted(file.name for file in (ROOT / "experiments").glob("[a-z]*.py"))


def run(*arguments, root=ROOT, **environment):
    """Runs Python with the standard library only; returns (exit code, output)."""
    variables = {"PATH": os.environ["PATH"]} | environment
    command = [sys.executable, "-S", *arguments]
    done = subprocess.run(command, cwd=root, env=variables, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


HINT = activation_hint("jax") + "\n"
FILES_OF_A_CLONE = ("experiments/run.py", "experiments/cli/activate.py", "theory/__init__.py")
FILES_OF_A_CLONE += (
    "jaxformer/__init__.py",
    "jaxformer/core/__init__.py",
    "jaxformer/core/errors.py",
    "jaxformer/core/lazy.py",
)
FILES_OF_A_CLONE += ("jaxformer/runtime/__init__.py", "jaxformer/runtime/command_line.py")
MODULES = ("theory.advise", "theory.phase_map")
MODULES += ("jaxformer.models.pretrained.tiny",)


def test_commands_without_jax_print_the_hint():
    outputs = {command: run(f"experiments/{command}", "--help") for command in COMMANDS}
    assert outputs == dict.fromkeys(COMMANDS, (1, HINT))
    assert run("experiments/look.py", PYTHONPATH=str(ROOT)) == (1, HINT)


def test_a_command_of_a_clone_that_is_not_on_the_path_runs():
    packages = sysconfig.get_path("purelib")  # -S ignores the file that puts this clone on the path
    code, output = run("experiments/run.py", "--help", PYTHONPATH=packages)
    assert code == 0, output
    assert "mixit/retrieval" in output


def test_modules_without_jax_print_the_hint():
    for module in MODULES:
        code, output = run("-m", module, PYTHONPATH=str(ROOT))
        assert (code, re.sub("numpy", "jax", output)) == (1, HINT), module


def test_the_hint_in_a_clone_without_an_environment_begins_with_make_venv(tmp_path):
    for file in FILES_OF_A_CLONE:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    advise = ("-m", "theory.advise")
    for first in ("`make venv`, then ", ""):
        line = f"error: this python has no jax; {first}`source .venv/bin/activate` first.\n"
        assert run("experiments/run.py", root=tmp_path) == (1, line)
        output = run(*advise, root=tmp_path, PYTHONPATH=str(tmp_path))
        assert output == (1, line.replace("jax", "numpy"))
        (tmp_path / ".venv").mkdir(exist_ok=True)


def test_a_library_that_is_imported_keeps_its_own_words():
    code, output = run("-c", "import jaxformer; import jaxformer.models; import theory")
    assert (code, output) == (0, "")
