"""Which runs of a row are drawn, and what is said of those that are not."""

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


def test_of_runs_that_differ_in_their_data_alone_one_figure_is_shown(row):
    (drawn,) = row.records.values()
    split = rules.Side("one", "metric", among=("one", "two", "three", "four"))
    row = row._replace(item=row.item._replace(rules={"the mean": rules.above(split, 0.5)}))
    told = "This is one run; 2 more runs of the same kind are in the numbers."
    held = dict.fromkeys(("two", "three", "four", "other"), drawn)
    assert figures._alike(row, held) == {"two": told, "three": None, "four": None}
    assert figures._alike(row, {"four": drawn}) == {}


def test_of_many_runs_that_differ_in_a_number_alone_the_first_and_the_last_are_shown(row):
    (drawn,) = row.records.values()

    def alike(**configs):
        cells = {name: Cell(f"configs/a/b.py:{words}") for name, words in configs.items()}
        row_ = row._replace(item=row.item._replace(cells=cells, rules={}))
        return figures._alike(row_, dict.fromkeys(cells, drawn))

    many = {f"n{i}": f"layers={i},reading=rarer" for i in (3, 4, 5, 6)}
    told = (
        "This is one run, n3; 2 more runs of the same kind are in the numbers; the last of them, "
        "n6, is the next picture."
    )
    assert alike(**many, other="layers=3,reading=more") == {"n3": told, "n4": None, "n5": None}
    many.pop("n6")
    assert alike(**many) == {}  # three are all drawn
    words = {f"n{i}": f"when={when}" for i, when in enumerate(("begin", "end", "both", "never"))}
    assert alike(**words) == {}  # what differs in words is of another kind


def test_a_figure_that_nothing_draws_is_missed_aloud(row):
    (whole,) = row.records.values()
    (figure,) = figures.figures(row)
    assert "webp" in figure.html and figures.lost(row) == []
    record = dataclasses.replace(whole, figure=None)
    row = row._replace(records={"paths": record})
    (line,) = figures.lost(row)
    assert line.startswith(f"The figure of {record.config_file} is missing: ")
    assert figures.figures(row) == [] and f'<p class="problem">{line}</p>' in section(row, {})
    text = page([row], [record], [], "A title")
    assert text.count("is missing: ") == 1


def test_a_run_that_trains_misses_no_figure(rows):
    trained = next(row for row in rows if row.item.name == "Table 1")
    assert trained.records and figures.lost(trained) == []
