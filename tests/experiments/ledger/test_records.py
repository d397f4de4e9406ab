"""Records and their companion files: round trips, and a one-line error for each defect."""

import csv
import itertools
import json

import numpy as np
import pytest

from experiments.cli import flags
from experiments.ledger import curves, read, validate_record, write
from experiments.ledger.record import Record, key, run_name
from jaxformer import build
from jaxformer.io.run_folder import config_hash
from tests.experiments import made_up

ROWS = [
    {"step": 10, "loss": [1.23456789, None], "probes": {"p": [0.5, 1e-9]}},
    {"step": 20, "loss": [1.0, 2.0], "attention": [[0.1, 0.2], [0.3, 0.4]]},
    {"step": 20, "validation": {"accuracy": [1.0, 0.5], "loss": [3.0, 4.0]}},
]


def test_curves_are_written_with_six_digits_and_read_back():
    result = curves.of_rows(ROWS)
    assert result["training"]["attention/1"] == [(20, [0.2, 0.4])]  # a column a member
    text = curves.as_csv(result)
    head, *lines = text.splitlines()
    assert head == "step,split,metric,member 0,member 1"
    assert "10,training,loss,1.23457," in lines and "10,probes,p,0.5,1e-09" in lines
    read = curves.of_csv(text)
    assert read["validation"] == result["validation"] and read["probes"] == result["probes"]
    assert read["training"]["loss"] == [(10, [1.23457, None]), (20, [1.0, 2.0])]
    assert curves.as_csv(read) == text and curves.as_csv({}) == ""


def test_curves_are_thinned_to_their_last_step():
    rows = [{"step": step, "loss": [1.0]} for step in range(1, 1001)]
    steps = [step for step, _ in curves.of_rows(rows)["training"]["loss"]]
    assert len(steps) <= curves.MAX_CURVE_ROWS and steps[-1] == 1000
    assert {b - a for a, b in itertools.pairwise(steps)} == {34}


def test_damaged_curves_are_one_line_errors():
    with pytest.raises(ValueError, match="should begin with step, split, metric"):
        curves.of_csv("a,b\n")
    with pytest.raises(ValueError):
        curves.of_csv("step,split,metric,member 0\n1,training,loss,x\n")


def test_arrays_are_written_by_rows_and_their_place_is_said(tmp_path):
    arrays = {
        "deep": np.arange(6 * 5 * 50).reshape(6, 5, 50) / 7,
        "small": np.arange(6 * 4 * 50).reshape(6, 4, 50),
        "steps": np.array([0, 100_000]),
        "tau": np.float64(0.123456789),
        "names": np.array(["a, b", "c"]),
    }
    np.savez(tmp_path / "arrays.npz", **arrays)
    head, *lines = csv.reader(write.table(tmp_path / "arrays.npz").splitlines())
    assert head == ["array", "indices", "values"]
    result = {(name, place): values for name, place, *values in lines}
    assert result["names", "0:2:1"] == ["a, b", "c"] and result["tau", ""] == ["0.12346"]
    assert result["steps", "0:2:1"] == ["0", "100000"]
    assert len(result) == 3 + 5 * 5 + 6 * 4  # of a long array's first axis five entries
    assert result["small", "5 3 0:50:1"][-1] == "1199"
    row = result["deep", "3 1 0:50:3"]
    np.testing.assert_allclose([*map(float, row)], arrays["deep"][3, 1, 0:50:3], rtol=1e-4)


def test_a_record_is_compact_and_the_same_json():
    record = made_up.RECORDS["a"] | {"rules": "a {b} [c]\n{", "empty": {}}
    text = write.compact(record)
    assert json.loads(text) == json.loads(json.dumps(record))
    assert '"accuracy": { "mean": 0.97, "n": 2, "sem": 0.001 }' in text


@pytest.mark.parametrize(
    "change, message",
    [
        ({"schema": 1}, "schema 1, this version reads 2"),
        ({"seeds": "0, 1"}, "'seeds' should be a list, it is '0, 1'"),
        ({"seeds": ["0"]}, "its 'seeds' are damaged: \\['0'\\]"),
        ({"seeds": [True]}, "its 'seeds' are damaged: \\[True\\]"),
        ({"metrics": {"accuracy": 0.5}}, "its 'metrics' are damaged"),
        ({"config": {"name": "x"}}, "its config has no arguments: an older version made it"),
        ({"config": {"name": "x", "arguments": 1}}, "its 'config' are damaged"),
        ({"steps": "many"}, "its 'steps' are damaged: 'many'"),
        ({"steps": 10**400}, "its 'steps' are damaged"),
        ({"seconds": {}}, "its 'seconds' are damaged"),
        ({"environment": {"commit": 5}}, "its 'environment' are damaged"),
        ({"members": [{"learning_rate": "fast"}]}, "its 'members' are damaged"),
        ({"baselines": {"guess": float("nan")}}, "its 'baselines' are damaged"),
        ({"scale": "\ud800"}, "a text of it is not valid Unicode"),
        ({"config_hash": "x/../../precious"}, "its config and hash make no file name"),
        ({"sum": "0" * 12}, "it was edited: its checksum differs"),
    ],
)
def test_what_is_wrong_with_a_record_is_a_one_line_error(change, message):
    with pytest.raises(ValueError, match=message) as error:
        Record.from_json(made_up.RECORDS["a"] | change)
    assert "\n" not in str(error.value)


def test_seeds_do_not_tell_records_apart_and_a_run_has_one_name():
    record = Record.from_json(made_up.RECORDS["b"])
    assert record.key == key(record.config | {"n_seeds": 99}) != key(record.config | {"seed": 1})
    name = run_name(record.config, record.config_hash)
    assert name == f"mixit-retrieval-frozen_qk-small-{record.config_hash}"
    assert record.command.startswith("jaxformer run mixit/retrieval:variant=frozen_qk")


def test_a_number_edited_by_hand_is_noticed(tmp_path):
    record = json.loads(json.dumps(made_up.RECORDS["a"]))
    (tmp_path / "a.json").write_text(
        write.compact(record | {"sum": validate_record.sum_of(record)})
    )
    assert not read.load(tmp_path)[1]
    text = (tmp_path / "a.json").read_text().replace("0.97", "0.98")
    (tmp_path / "a.json").write_text(text)
    records, problems = read.load(tmp_path)
    assert records == [] and "a.json: it was edited" in problems[0]


def test_records_that_differ_in_their_seeds_load_their_config_once(tmp_path, monkeypatch):
    """Ten thousand records are then read in a minute."""
    loads, load = [], flags.load_recorded_config
    monkeypatch.setattr(
        flags, "load_recorded_config", lambda *given: loads.append(given) or load(*given)
    )
    read._loaded.cache_clear()
    template = json.loads(json.dumps(made_up.RECORDS["a"]))
    template.pop("sum", None)
    for seed in range(3):
        config = template["config"] | {"seed": seed}
        made = template | {"config": config, "overrides": {"seed": str(seed)}}
        made["config_hash"] = config_hash(build.config_identity(config))
        (tmp_path / f"{seed}.json").write_text(json.dumps(made))
    made["config"]["seed"] = 9  # an edited config
    (tmp_path / "edited.json").write_text(json.dumps(made))
    records, problems = read.load(tmp_path)
    assert not problems and len(loads) == 1
    assert [record.stale for record in records[:3]] == ["", "", ""]
    assert records[3].stale == "its config was edited: the hash differs."
    assert [record.key for record in records[:3]] == [key(r.config) for r in records[:3]]
    assert records[0].members[:] == template["members"]


def test_no_name_of_a_record_leaves_its_folder(tmp_path):
    """Superfluous records are deleted under the name that their config gives."""
    precious = made_up.RECORDS["a"]
    for change in ({"config_hash": "x/../../a"}, {"config_hash": ".."}, {"config_hash": "a b"}):
        with pytest.raises(ValueError, match="make no file name"):
            Record.from_json(precious | change)
    labels = precious["config"]["arguments"] | {"variant": "../../x"}
    config = precious["config"] | {"arguments": labels}
    with pytest.raises(ValueError, match="make no file name"):
        Record.from_json(precious | {"config": config})


@pytest.mark.parametrize("place", [60, 200, -30])
def test_a_flipped_bit_of_a_picture_is_noticed(place):
    png = bytearray(made_up.png())
    validate_record.check_picture(bytes(png))
    png[place] ^= 1
    with pytest.raises(ValueError, match="a part of it is damaged"):
        validate_record.check_picture(bytes(png))
