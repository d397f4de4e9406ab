"""Figures as vectors: drawn again from a record's arrays if it has them whole, else its picture."""

import dataclasses
import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from experiments.cli import flags
from experiments.ledger.record import Record
from experiments.ledger.write import table
from experiments.papers import plots
from experiments.site import picture, redraw
from experiments.site.arrays import arrays_of, table_of
from tests.experiments import made_up

ARRAYS = {
    "curve": np.linspace(0, 1, 1250),
    "long": np.linspace(0, 1, 1251),
    "map": np.arange(12.0).reshape(3, 4),
    "seeds": np.arange(40.0).reshape(5, 2, 4),
    "count": np.array(7),
    "kept": np.array([True, False]),
    "names": np.array(["good", "=a1"]),
    "roots": np.array([0.5, -1 + 2j, -1j]),
    "tall": np.ones((30, 60)),
}


@pytest.fixture
def record(tmp_path):
    np.savez(tmp_path / "arrays.npz", **ARRAYS)
    (tmp_path / "a.csv").write_text(table(tmp_path / "arrays.npz"))
    return Record.from_json(made_up.RECORDS["figure"], table=tmp_path / "a.csv")


def test_arrays_come_back_and_say_whether_they_are_whole(record):
    held = arrays_of(record)
    assert {name for name, array in held.items() if not array.is_whole} == {"long", "tall"}
    for name in ("curve", "map", "seeds", "count", "kept", "names", "roots"):
        if name != "curve":
            np.testing.assert_array_equal(held[name].values, ARRAYS[name])
    np.testing.assert_allclose(held["curve"].values, ARRAYS["curve"], rtol=1e-4)
    short = {name: array.values.size for name, array in arrays_of(record).items()}
    assert short["curve"] == 1250 and short["long"] < 30 and short["tall"] == 15 * 20
    more = dataclasses.replace(record, seeds=[*range(9)])
    assert not arrays_of(more)["seeds"].is_whole  # five of nine are kept


def test_what_a_page_saves_of_them_is_short_and_says_which_part_it_is(record):
    lines = [line.split(",") for line in table_of(record).splitlines()]
    saved = {(name, place): values for name, place, *values in lines[1:]}
    assert len(saved["curve", "0:1250:53"]) == 24
    assert saved["curve", "0:1250:53"][1] == "0.04243"  # 53 / 1249 with four digits
    assert saved["count", ""] == ["7"] and saved["names", "0:2:1"] == ["good", "'=a1"]
    assert saved["map", "1 0:4:1"] == ["4", "5", "6", "7"]
    tall = [place.split()[0] for name, place in saved if name == "tall"]
    assert tall == [str(2 * k) for k in range(0, 15, 2)]  # 15 rows of 20 would be too many
    record.table.write_text("array,indices,values\nodd,0:x:1,0.123456\n")
    assert table_of(record).splitlines()[1] == "odd,0:x:1,0.1235"


def test_a_drawing_keeps_its_words_and_loses_digits_of_places_alone():
    figure, (axis,) = plots.row(1, (3, 2))
    axis.plot([0, 1.23456], [0, 1], label="a <b> & 'c' 0.987")
    axis.legend()
    text = redraw.as_svg(figure)
    plots.pyplot().close(figure)
    root = ElementTree.fromstring(text)
    assert "a <b> & 'c' 0.987" in "".join(root.itertext())
    assert len(text) < 9000 and "<metadata" not in text and "style=" not in text
    named = {e.get("id") for e in root.iter() if e.get("id")}
    used = [v[1:] for e in root.iter() for n, v in e.items() if n.endswith("href")]
    used += re.findall(r"url\(#(\w+)\)", text)
    assert used and {*used} <= named
    source = picture._in_attribute(text)
    assert '"' not in source and "#" not in source and "&amp;lt;b&amp;gt;" in source


def recorded(name, is_thinned=False):
    """A record of results/ whose name begins so, with what lies beside it."""
    for file in sorted((flags.ROOT / "results").glob(f"{name}*.json")):
        beside = {"table": file.with_suffix(".csv"), "figure": file.with_suffix(".png")}
        record = Record.from_json(json.loads(file.read_text()), **beside)
        if not is_thinned or not arrays_of(record)["steps"].is_whole:
            return record
    raise AssertionError(f"results/ has no {name}")


def test_a_record_with_whole_arrays_is_drawn_anew_and_others_are_not():
    assert redraw.drawing(recorded("two_failure_modes-critical_alpha")).startswith("<svg")
    thinned = recorded("two_failure_modes-fig3_phase")
    assert redraw.drawing(thinned) == ""
    assert 'src="data:image/webp;base64,' in picture.image(thinned, thinned.figure)


def test_a_thinned_curve_says_so_and_its_numbers_are_those_of_the_record():
    record = recorded("associations-recall-small", is_thinned=True)
    text = redraw.drawing(record)
    words = " ".join(re.sub("<[^>]*>", " ", text).split())
    assert "Not all points that were measured are drawn." in words
    mean = record.metrics["p_correct_without_f2"]["mean"]
    assert f"without f2 {mean:.2f} and" in words


def test_no_record_makes_the_page_read_another_file(tmp_path, record):
    config = record.config | {"recipe": "solve", "data": {"file": str(tmp_path / "secret.npz")}}
    assert redraw._figure(dataclasses.replace(record, config=config)) is None
    assert redraw.drawing(dataclasses.replace(record, config={"recipe": "solve"})) == ""
