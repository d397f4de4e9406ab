"""Odd records and records from others are named, and their content never becomes markup."""

import copy
import csv
import io
import json
from pathlib import Path

import pytest

from experiments.ledger import read
from experiments.ledger.ledger import ledger
from experiments.site import html, paper_pages, results_pages
from experiments.site.html import page
from jaxformer.io.atomic_files import dumps, write_json
from jaxformer.report.tables import csv_text
from tests.experiments import made_up
from tests.experiments.site.reader import Reader

MARKUP = """x"'><script>alert(1)</script><img src=//x.y/z onerror=alert(2)>[a](javascript:b)"""


def test_a_stale_record_decides_nothing_and_is_named_everywhere(tmp_path):
    write_json(tmp_path / "a.json", made_up.RECORDS["a"] | {"config_hash": "0" * 12})
    write_json(tmp_path / "gone.json", made_up.RECORDS["b"] | {"config_file": "configs/gone.py"})
    records, problems = read.load(tmp_path)
    rows = ledger({"made_up": made_up.PAPER}, records)
    assert {row.verdict for row in rows if row.item.cells} == {"not run"}
    text = page(rows, records, problems, "A title")
    assert "(stale)" in text and "Stale, so it decides nothing: A: its config" in text
    assert "no config file &#x27;configs/gone.py&#x27;" in text
    assert "its config has changed" in text[text.index('id="unusable"') :]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"metrics": {"accuracy": 0.5}}, "its 'metrics' are damaged"),
        ({"seeds": "0, 1"}, "'seeds' should be a list"),
        ({"schema": 99}, "schema 99"),
    ],
)
def test_an_unusable_record_is_named_and_the_page_is_still_made(tmp_path, change, message):
    write_json(tmp_path / "a.json", made_up.RECORDS["a"] | change)
    write_json(tmp_path / "figure.json", made_up.RECORDS["figure"])
    (tmp_path / "figure.png").write_bytes(made_up.png()[:-20])
    records, problems = read.load(tmp_path)
    assert len(records) == 1 and message in problems[0] and "figure is damaged" in problems[1]
    rows = ledger({"made_up": made_up.PAPER}, records)
    assert "a.json" in page(rows, records, problems, "A title")


def test_no_content_of_a_record_breaks_the_page(tmp_path):
    """Each field in turn is junk or missing: the record is named, or shown without the field."""
    for field in made_up.RECORDS["a"]:
        for junk in (None, "junk", [None], {"a": {}}):
            record = made_up.RECORDS["a"] | {field: junk}
            (tmp_path / "a.json").write_text(json.dumps(record))
            records, problems = read.load(tmp_path)
            rows = ledger({"made_up": made_up.PAPER}, records)
            text = page(rows, records, problems, "A title")
            assert len(records) + len(problems) == 1 and "a.json" in text, (field, junk)
            results_pages.results(rows, records, problems)


def test_a_number_that_is_not_finite_gives_no_verdict(tmp_path):
    changed = {"metrics": {"accuracy": {"mean": None, "sem": None, "n": 2}}}
    write_json(tmp_path / "a.json", made_up.RECORDS["a"] | changed)
    records, problems = read.load(tmp_path)
    (row, *_) = rows = ledger({"made_up": made_up.PAPER}, records)
    assert row.verdict == "not run" and "not finite" in row.problems[0]
    assert "not finite" in page(rows, records, problems, "A title")


def strings(value, path=()):
    """Yields the path of each text of a record, and whether the text is a name."""
    if isinstance(value, str):
        yield path, False
    inside = enumerate(value) if isinstance(value, list) else ()
    for name, entry in value.items() if isinstance(value, dict) else inside:
        if isinstance(name, str):
            yield (*path, name), True
        yield from strings(entry, (*path, name))


def changed(value, path, is_name):
    """Returns the record with MARKUP as, or inside, the text at a path."""
    value = copy.deepcopy(value)
    *parents, last = path
    inside = value
    for name in parents:
        inside = inside[name]
    if is_name:
        inside[f"{last}{MARKUP}"] = inside.pop(last)
    else:
        inside[last] = f"{inside[last]}{MARKUP}" if last != "commit" else MARKUP
    return value


def test_no_text_of_a_record_becomes_markup(tmp_path):
    """Tests every text and every name of a record in one page."""
    count = 0
    for name in ("a", "figure"):
        record = json.loads(dumps(made_up.RECORDS[name]))
        for i, (path, is_name) in enumerate(strings(record)):
            write_json(tmp_path / f"{name}{i}.json", changed(record, path, is_name))
            count += 1
    (tmp_path / f"<script>{'b' * 9}.json").write_text("{}")
    assert count > 100
    records, problems = read.load(tmp_path)
    rows = ledger({"made_up": made_up.PAPER}, records)
    assert len(records) > 40 and len(problems) > 20  # some words are shown, some are refused
    result = Reader(page(rows, records, problems, "A title", folder=tmp_path))
    assert result.wrong == [] and "iframe" not in {tag for tag, _ in result.elements}
    ours = {Path(html.__file__).with_name(name).read_text() for name in html.SCRIPTS}
    for tag, attributes, content in result.texts:  # what runs is ours alone
        assert tag != "script" or attributes.get("id") == "files" or "".join(content) in ours
    assert not [name for _, record in result.elements for name in record if name.startswith("on")]
    for name in ("src", "href", "srcset", "action", "poster"):
        links = [link for link in result.of(name) if not link.startswith(("#", "data:"))]
        assert not any(":" in link or link.startswith(("/", "\\")) for link in links), links
    text = results_pages.results(rows, records, problems)
    text += paper_pages.paper_page(made_up.PAPER, rows, records, {})
    outside = "\n".join(line for line in text.splitlines() if not line.startswith("    "))
    assert "alert(1)" in outside and "<script" not in outside and "<img" not in outside
    assert "](javascript" not in outside


def test_no_cell_of_a_table_becomes_a_formula():
    rows = [["=1+1", "@SUM(A1)", "+a", "-b", "\t=1", "-0.5", "-inf", "-", "1e-3", "+2", "a=b"]]
    cells = next(csv.reader(io.StringIO(csv_text(rows))))
    assert cells[:5] == ["'=1+1", "'@SUM(A1)", "'+a", "'-b", "'\t=1"]
    assert cells[5:] == rows[0][5:]
