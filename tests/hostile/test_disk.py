"""A disk without room: one line, exit code 2, and what was there before is there still.

A child may write so many bytes into a file and no more, which its system refuses as a full disk's
does. To add a case: a line in WRITES.
"""

import importlib
import os
import resource
from pathlib import Path

import pytest

from tests.hostile.test_inputs import ended

pytestmark = [pytest.mark.hostile, pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")]
ROOMS = (1500, 6000, 12_000)  # bytes
OUT = "{out}"
WRITES = {
    "page": ("experiments.report", [f"--page={OUT}/x.html"]),
    "tables": ("experiments.report", [f"--tables={OUT}"]),
    "pages": ("experiments.report", []),
    "map": ("theory.phase_map", ["--length=8", "--points=30", f"--out={OUT}/x.png", "--force"]),
    "overwritten": ("experiments.report", [f"--page={OUT}/old.html"]),
}


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("name", WRITES)
def test_a_full_disk_is_one_line_and_nothing_is_lost(tmp_path, monkeypatch, name, room):
    from experiments import report

    command, words = WRITES[name]
    module = importlib.import_module(command)
    repo, out = tmp_path / "repo", tmp_path / "out"
    repo.mkdir()
    out.mkdir()
    for file in ("README.md", "RESULTS.md"):
        (repo / file).write_text((report.ROOT / file).read_text() + "\nof the user")
    (out / "old.html").write_text("of the user")
    monkeypatch.setattr(report, "load", lambda folder: _records(folder))
    monkeypatch.setattr(report, "ROOT", repo)
    main = module.main

    def limited(words):
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        return main(words)

    monkeypatch.setattr(module, "main", limited)
    code, said = ended(command, [word.format(out=out) for word in words], tmp_path / "said.txt")
    lines = [line for line in said.splitlines() if line.startswith("error: ")]
    assert code == 2 and len(lines) == 1 and "Traceback" not in said, said
    for file in ("README.md", "RESULTS.md"):
        assert (repo / file).read_text().endswith("of the user")
    assert (out / "old.html").read_text() == "of the user"
    left = [f for folder in (repo, out) for f in folder.iterdir() if f.name.startswith(".")]
    assert left == [], "a file that was not finished was left behind"


def _records(folder: Path):
    from experiments.ledger.read import load
    from experiments.ledger.write import RESULTS

    return load(RESULTS)
