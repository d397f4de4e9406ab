"""The pages are what the records say; records that cannot be used are named."""

import json

import pytest

from experiments import report
from experiments.run import main
from tests.experiments.conftest import TINY


def test_the_pages_are_up_to_date(capsys):
    assert report.main(["--check"]) == 0, capsys.readouterr().out
    assert report.main(["--chek"]) == 2


@pytest.fixture
def folder(finished, tmp_path, monkeypatch):
    """A results folder with one record of the finished run, written by the command."""
    monkeypatch.setattr("experiments.keep.RESULTS", tmp_path / "results")
    assert main([*TINY, f"--workdir={finished}", "--record"]) == 0
    return tmp_path / "results"


def test_a_record_shows_its_numbers_and_its_command(folder):
    (file,) = folder.iterdir()
    record = json.loads(file.read_text())
    assert record["schema"] == 1 and len(record["curves"]["training"]) == 6
    records, problems = report.load(folder)
    assert not problems and not records[0]["stale"]
    text = report.render(records, problems)["RESULTS.md"]
    assert "| frozen_qk |" in text and "in context guess" in text
    assert f"python experiments/run.py {TINY[0]} --config.data.test_size=40" in text


def test_a_changed_config_makes_a_record_stale(folder):
    (file,) = folder.iterdir()
    record = json.loads(file.read_text()) | {"config_hash": "0" * 12}
    file.write_text(json.dumps(record))
    records, _ = report.load(folder)
    assert records[0]["stale"] and "**stale**" in report.render(records, [])["RESULTS.md"]


@pytest.mark.parametrize(
    "content, words", [("{", "Expecting"), ('{"schema": 99}', "schema 99"), ("{}", "schema")]
)
def test_records_that_cannot_be_used_are_named_and_the_rest_is_shown(folder, content, words):
    (folder / "damaged.json").write_text(content)
    records, problems = report.load(folder)
    assert len(records) == 1 and words in problems[0]
    assert "damaged.json" in report.render(records, problems)["RESULTS.md"]
