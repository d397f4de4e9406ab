"""The description of the machine and the commit that a record keeps."""

import subprocess

import pytest

from jaxformer.runtime import environment


@pytest.mark.parametrize("folder", ["results", "confirmation/records", "ladders/records"])
def test_a_new_record_leaves_the_commit_of_the_next_run_clean(tmp_path, monkeypatch, folder):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)

    def git(*arguments):
        done = subprocess.run(["git", *arguments], cwd=tmp_path, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else None

    monkeypatch.setattr(environment, "git", git)
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "one.json").write_text("{}")
    assert environment.environment()["clean"]
    (tmp_path / "model.py").write_text("")
    assert not environment.environment()["clean"]
