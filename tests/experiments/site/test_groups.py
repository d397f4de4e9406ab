"""The chart of accuracy by kind of example shows the runs with the widest range, in order."""

from experiments.ledger.item import Cell, Item, Paper
from experiments.ledger.ledger import Row
from experiments.ledger.record import Record
from experiments.site.groups import by_kind, of_record
from tests.experiments import made_up

CELL = Cell("configs/mixit/retrieval.py:variant=standard")


def record(**scores):
    """Returns a record with these scores: pairs_3_4=.5 is that of three and four pairs."""
    content = made_up.record(CELL, 0.7)
    for name, mean in scores.items():
        kind, *numbers = name.split("_")
        value = {"mean": mean, "sem": 0.01, "n": 2}
        content["metrics"][f"accuracy/{kind}={'-'.join(numbers)}"] = value
    return Record.from_json(content)


def row(**records):
    item = Item("Table 1", "claim.", {name: CELL for name in records})
    return Row(Paper("p", "title", "source", (item,)), item, records, [], "", [])


def test_kinds_are_sorted_by_their_numbers():
    kinds = of_record(record(pairs_9_16=0.2, pairs_1_2=0.9, pairs_3_8=0.5))
    assert kinds.labels == ("1-2", "3-8", "9-16")
    assert [*kinds.points.values()] == [(0.9, 0.01), (0.5, 0.01), (0.2, 0.01)]
    assert of_record(record(pairs_1=0.9)) is None and of_record(record()) is None


def test_the_runs_with_the_widest_range_of_kinds_are_drawn():
    long = record(pairs_1_2=0.9, pairs_23_24=0.1)
    (figure,) = by_kind(row(short=record(pairs_1=1.0, pairs_2=1.0, pairs_12=0.5), a=long, b=long))
    assert figure.title == "Accuracy by pairs, 1-2 to 23-24: a 0.9 to 0.1, b 0.9 to 0.1."
    assert figure.title in figure.html
    assert figure.html.startswith("<svg") and "23-24" in figure.html
    assert len(figure.records) == 2 and "0.89" in figure.csv and "short" not in figure.legend
    assert by_kind(row(c=record())) == []
