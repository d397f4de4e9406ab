"""Simulated commands of Slurm."""

import pytest


@pytest.fixture
def pretended(tmp_path, monkeypatch):
    """Returns pretended(name, text), which replaces a command of Slurm by a shell script."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def write(name, text):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)

    return write
