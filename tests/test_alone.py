"""The library needs nothing above it, and leaves the user's names and process alone.

Each test runs a fresh process, because modules that another test imported would hide what is
missing.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
OWN_PACKAGES = ("experiments", "configs", "theory", "tests")
UNCHANGED = """
import os, sys
import jax, threadpoolctl  # these set variables of their own

def state():
    return list(sys.path), dict(os.environ), sys.excepthook, sys.unraisablehook

before = state()
import jaxformer

assert state() == before, "import jaxformer"
for name in jaxformer.__all__:
    getattr(jaxformer, name)
    assert state() == before, name
"""
OWN_AFTERWARDS = """
import configs.mine, experiments.mine, tests.mine, theory.mine
"""
LIBRARY_LAST = """
import configs.mine, experiments.mine, tests.mine, theory.mine
import jaxformer
for name in jaxformer.__all__:
    getattr(jaxformer, name)
assert all(module.mine.MINE for module in (configs, experiments, tests, theory))
"""
ALONE = """
import importlib.util, sys
from pathlib import Path

root, folder = map(Path, sys.argv[1:])
sys.path[:] = [str(folder), *(entry for entry in sys.path if Path(entry).resolve() != root)]
assert not any(map(importlib.util.find_spec, ("experiments", "configs", "theory")))
import jaxformer
from jaxformer.tasks.retrieval import Retrieval

assert Path(jaxformer.__file__).is_relative_to(folder)
for name in jaxformer.__all__:
    getattr(jaxformer, name)
small = {"steps": 2, "batch_size": 4, "progress": False}
answer = jaxformer.litmus(
    Retrieval(max_pairs=3, vocab=12), width=8, heads=2, layers=1, seeds=1,
    variants=["standard", "mixit"], workdir="runs", **small,
)
assert answer.verdict == "cannot be told"  # after two steps
assert "accuracy" in str(jaxformer.compare("runs/standard", "runs/mixit"))
"""


def run(code: str, folder: Path, *arguments: Path, path: Path = ROOT) -> None:
    environment = os.environ | {"PYTHONPATH": str(path)}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert not done.returncode, done.stderr[-2000:]


def own_packages(folder: Path) -> Path:
    for name in OWN_PACKAGES:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("")
        (folder / name / "mine.py").write_text("MINE = True")
    return folder


def test_no_public_name_changes_path_environment_or_hooks_or_hides_the_users_packages(tmp_path):
    run(UNCHANGED + OWN_AFTERWARDS, own_packages(tmp_path))


def test_the_library_works_beside_the_users_own_packages(tmp_path):
    run(LIBRARY_LAST, own_packages(tmp_path))


def test_a_copy_of_the_library_alone_has_all_public_names_and_runs_a_study(tmp_path):
    ignored = shutil.ignore_patterns("__pycache__", "lab")
    shutil.copytree(ROOT / "jaxformer", tmp_path / "lib/jaxformer", ignore=ignored)
    run(ALONE, tmp_path, ROOT, tmp_path / "lib", path=tmp_path / "lib")
