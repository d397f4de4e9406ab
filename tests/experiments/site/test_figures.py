"""The runs of a row whose figures are shown, and the captions about the omitted ones."""

import dataclasses

import pytest

from experiments.ledger import rules
from experiments.ledger.item import Cell
from experiments.site import figures
from experiments.site.html import page
from experiments.site.section import section


@pytest.fixture(scope="module")
def row(rows):
    return next(row for row in rows if row.item.name.startswith("Figure 2"))


def test_one_picture_is_shown_of_runs_that_differ_in_their_data_alone(row):
    (drawn,) = row.records.values()
    split = rules.Side("one", "metric", among=("one", "two", "three", "four"))
    row = row._replace(item=row.item._replace(rules={"the mean": rules.above(split, 0.5)}))
    caption = "This is one run; 2 more runs of the same kind are in the numbers."
    records = dict.fromkeys(("two", "three", "four", "other"), drawn)
    assert figures.shown_runs(row._replace(records=records)) == {"two": caption, "other": ""}
    assert figures.shown_runs(row._replace(records={"four": drawn})) == {"four": ""}


def test_the_first_and_the_last_of_many_runs_that_differ_in_a_number_are_shown(row):
    (drawn,) = row.records.values()

    def shown(**arguments):
        cells = {name: Cell(f"configs/a/b.py:{text}") for name, text in arguments.items()}
        item = row.item._replace(cells=cells, rules={})
        return figures.shown_runs(row._replace(item=item, records=dict.fromkeys(cells, drawn)))

    many = {f"n{i}": f"layers={i},reading=rarer" for i in (3, 4, 5, 6)}
    caption = (
        "This is one run, n3; 2 more runs of the same kind are in the numbers; the last of them, "
        "n6, is the next picture."
    )
    expected = {"n3": caption, "n6": "", "other": ""}
    assert shown(**many, other="layers=3,reading=more") == expected
    many.pop("n6")
    assert shown(**many) == dict.fromkeys(many, "")  # three are all shown
    fields = {f"n{i}": f"when={when}" for i, when in enumerate(("begin", "end", "both", "never"))}
    assert shown(**fields) == dict.fromkeys(fields, "")  # a difference in words is another kind


def test_a_missing_figure_is_reported(row):
    (whole,) = row.records.values()
    (figure,) = figures.figures(row)
    assert "webp" in figure.html and figures.missing_figures(row) == []
    record = dataclasses.replace(whole, figure=None)
    row = row._replace(records={"paths": record})
    (line,) = figures.missing_figures(row)
    assert line.startswith(f"The figure of {record.config_file} is missing: ")
    assert figures.figures(row) == [] and f'<p class="problem">{line}</p>' in section(row, {})
    text = page([row], [record], [], "A title")
    assert text.count("is missing: ") == 1


def test_a_training_run_needs_no_figure(rows):
    trained = next(row for row in rows if row.item.name == "Table 1")
    assert trained.records and figures.missing_figures(trained) == []
