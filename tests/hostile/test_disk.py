"""A full disk ends a command with one line and exit code 2, and loses nothing that was there.

A child may write so many bytes into a file and no more, which its system refuses as a full disk's
does. To add a case: a line in WRITES.
"""

import os
import shutil
import subprocess
import sys

import pytest

from experiments.cli import flags
from tests.hostile.test_inputs import ask as ask  # a fixture

pytestmark = pytest.mark.hostile
ROOMS = (1500, 6000, 12_000)  # bytes
OUT = "{out}"
IGNORED = shutil.ignore_patterns("__pycache__")
# python -c WITH_ROOM BYTES SCRIPT
WITH_ROOM = """
import resource, runpy, sys
sys.dont_write_bytecode = True  # Python would leave a cut .pyc in the environment
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
WRITES = {
    "page": ("experiments.report", [f"--page={OUT}/x.html"]),
    "tables": ("experiments.report", [f"--tables={OUT}"]),
    "map": ("theory.phase_map", ["--length=8", "--points=30", f"--out={OUT}/x.png", "--force"]),
    "diagram": ("theory.trainability", ["--length=8", f"--out={OUT}/y.png", "--force"]),
    "overwritten": ("experiments.report", [f"--page={OUT}/old.html"]),
}


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("name", WRITES)
def test_a_full_disk_is_a_one_line_error_and_nothing_is_lost(tmp_path, ask, name, room):
    command, words = WRITES[name]
    (tmp_path / "old.html").write_text("of the user")
    code, output = ask(command, [word.format(out=tmp_path) for word in words], room)
    lines = [line for line in output.splitlines() if line.startswith("error: ")]
    assert code == 2 and len(lines) == 1 and "Traceback" not in output, output
    assert str(tmp_path) in lines[0], "the line names the file"
    assert (tmp_path / "old.html").read_text() == "of the user"
    left = [f for f in tmp_path.iterdir() if f.name.startswith(".")]
    assert left == [], "a file that was not finished was left behind"


@pytest.mark.parametrize("room", ROOMS)
def test_the_pages_of_the_repository_are_replaced_whole(tmp_path, room):
    """README.md and RESULTS.md, in a copy of the tree with words of the user at their ends."""
    for name in ("experiments", "configs", "results", "docs"):
        shutil.copytree(flags.ROOT / name, tmp_path / name, ignore=IGNORED)
    for name in ("README.md", "RESULTS.md"):
        (tmp_path / name).write_text((flags.ROOT / name).read_text() + "\nof the user")
    done = subprocess.run(
        [sys.executable, "-c", WITH_ROOM, str(room), tmp_path / "experiments/report.py", "--write"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (tmp_path, flags.ROOT)))},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and done.stderr.startswith("error: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    for name in ("README.md", "RESULTS.md"):
        assert (tmp_path / name).read_text().endswith("of the user")
    assert not [f for f in tmp_path.iterdir() if f.name.startswith(".")]
