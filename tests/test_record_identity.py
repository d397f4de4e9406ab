"""Every stored record keeps its identity, whatever becomes of defaults, classes and config files.

A record is found by the hash of its config without labels and defaults. These hashes were frozen
once; new records may join them, none may be renamed or lost.
"""

import json
import subprocess
from pathlib import Path

import pytest

from experiments.cli import flags
from jaxformer import build
from jaxformer.io.run_folder import config_hash

ROOT = Path(__file__).parents[1]
FOLDERS = ("results", "ladders", "confirmation")
FROZEN = json.loads((Path(__file__).parent / "reference/record_hashes.json").read_text())


def stored_files():
    """Returns {path: content} of every tracked JSON file with records or plans."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("the records are listed by git, and this is no clone")
    paths = [path for path in listed.stdout.split("\0") if path.endswith(".json")]
    return {path: json.loads((ROOT / path).read_text()) for path in paths}


@pytest.fixture(scope="module")
def stored():
    return stored_files()


@pytest.fixture(scope="module")
def records(stored):
    return {path: content for path, content in stored.items() if "config" in content}


def identity_hash(config):
    return config_hash(build.config_identity(config))


def test_the_config_inside_each_record_has_the_hash_that_the_record_says(records):
    wrong = {
        path: record["config_hash"]
        for path, record in records.items()
        if identity_hash(record["config"]) != record["config_hash"]
    }
    assert not wrong


def test_the_config_file_of_each_record_still_leads_to_that_record(records):
    wrong = {}
    for path, record in records.items():
        config = flags.load_with_overrides(record["config_file"], record.get("overrides", {}))
        found = identity_hash(flags.to_dict(config))
        if found != record["config_hash"]:
            wrong[path] = found
    assert not wrong


def test_no_frozen_record_is_renamed_or_lost(records):
    for folder in FOLDERS:
        hashes = {r["config_hash"] for path, r in records.items() if path.startswith(folder)}
        assert not set(FROZEN["records"][folder]) - hashes, folder


def test_no_frozen_plan_is_changed(stored):
    plans = {path: stored[path]["hash"] for path in FROZEN["plans"]}
    assert plans == FROZEN["plans"]
