"""Records lie in folders like those of configs/, and are known by their content."""

import json
from pathlib import Path

import pytest

from experiments.ledger import read, validate_record, write
from experiments.ledger.places import place
from tests.experiments import made_up

RUN = {
    "config": {
        "name": "mixit/retrieval",
        "arguments": {"variant": "mixit", "preset": "paper", "scale": "small"},
        "seed": 0,
    },
    "config_file": "configs/mixit/retrieval.py:variant=mixit,scale=small",
    "overrides": {},
    "config_hash": "0123456789ab",
}


def named(**changed):
    return str(place(RUN | changed))


def test_a_record_lies_in_the_folder_of_its_config_and_says_what_the_command_chose():
    assert named() == "mixit/retrieval/mixit-small-0123456789ab"
    chosen = {"task.max_pairs": 8, "optim.learning_rate": [0.001, 0.003]}
    name = named(overrides=chosen)
    assert name == "mixit/retrieval/mixit-small-max_pairs=8-learning_rate=0.001,0.003-0123456789ab"


def test_labels_that_the_command_leaves_out_are_left_out_but_the_scale():
    spelt = "configs/mixit/retrieval.py:preset=long,variant=mixit"
    assert named(config_file=spelt) == "mixit/retrieval/mixit-preset=long-small-0123456789ab"
    assert named(config_file="configs/mixit/retrieval.py") == "mixit/retrieval/small-0123456789ab"


def test_the_seed_of_the_data_is_told_from_the_seed_of_the_run():
    both = {"seed": 1, "data.seed": 2}
    assert "-seed=1-data.seed=2-" in named(overrides=both)


@pytest.mark.parametrize("name", ["../../away", "/etc/x", "a//b", "a b/ü&c", ".hidden"])
def test_no_name_of_a_config_leads_out_of_the_folder(name):
    made = place(RUN | {"config": RUN["config"] | {"name": name}})
    assert not made.is_absolute() and ".." not in made.parts
    assert not any(part.startswith(".") for part in made.parts)


def test_a_value_that_is_a_path_or_very_long_still_makes_one_file_name():
    made = place(RUN | {"overrides": {"data.path": "/texts/" + "y" * 400}})
    assert len(made.name) < 200 and made.name.endswith("-0123456789ab")
    assert made.parent == Path("mixit/retrieval")


def test_a_record_that_lies_twice_counts_once_and_is_named(tmp_path):
    """A merge of a branch that knew the old places leaves such copies."""
    content = made_up.RECORDS["a"] | {"sum": validate_record.sum_of(made_up.RECORDS["a"])}
    for name in ("mixit/retrieval/a", "mixit-a"):
        file = tmp_path / f"{name}-{content['config_hash']}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content))
    records, problems = read.load(tmp_path)
    assert len(records) == 1 and "/mixit/retrieval/a-" in records[0].where
    assert len(problems) == 1 and problems[0].startswith("mixit-a-")
    assert "it is the same record as mixit/retrieval/a-" in problems[0]


@pytest.mark.parametrize("where", ["old-flat-name", "mixit/retrieval/other-words", "deep/er/x"])
def test_a_record_is_read_and_written_again_wherever_it_lies(tmp_path, monkeypatch, where):
    monkeypatch.setattr(write, "RESULTS", tmp_path)
    content = made_up.RECORDS["a"]
    assert write.recorded(content["config_hash"]) is None
    assert write.record_file(content) == tmp_path / f"{place(content)}.json"
    file = tmp_path / f"{where}-{content['config_hash']}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content))
    (record,), problems = read.load(tmp_path)
    assert record.config_hash == content["config_hash"] and not problems
    assert write.record_file(content) == file
