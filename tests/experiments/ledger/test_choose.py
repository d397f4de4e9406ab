"""Tables are selected by the names that users write, equally in the report and reproduce.py."""

import pytest

from experiments.ledger import choose
from experiments.papers import PAPERS
from experiments.schedule import planning
from jaxformer.core.errors import UserError

NAMES = ["Table 2, k-hop", "Table 2, retrieval", "Table 20", "Figure 1f", "Figure 1f, T = 32"]


@pytest.mark.parametrize(
    "beginning, expected",
    [
        ("Table 2", NAMES[:2]),
        ("table 2, RETR", NAMES[1:2]),
        ("Table", NAMES[:3]),
        ("Tab", NAMES[:3]),
        ("Figure 1", NAMES[3:]),
        ("figure 1f", NAMES[3:4]),  # a whole name is one row, not also its variants
        ("Figure 1f,", NAMES[4:]),
        ("Table 3", []),
        ("", []),
    ],
)
def test_whole_words_come_before_letters(beginning, expected):
    assert choose.names_beginning_with(NAMES, beginning) == expected


def test_what_is_possible_begins_with_the_beginnings():
    assert choose.choices(NAMES) == ["Table 2", "Table 20", "Figure 1f", *NAMES[:2], NAMES[4]]


def test_a_table_that_is_not_there_gets_the_nearest_beginning():
    with pytest.raises(UserError, match=r"'Tabl 2'\. Did you mean 'Table 2'\?") as caught:
        planning.select_items(PAPERS, "mixit", "Tabl 2")
    message = str(caught.value)
    assert "Table 2; " in message and "Table 2, retrieval" not in message and len(message) < 400


def test_the_letters_that_the_manual_promises_are_enough():
    (found,) = planning.select_items(PAPERS, "mixit", "Table 2, retr")
    assert found[1].name == "Table 2, retrieval"
    whole = planning.select_items(PAPERS, "mixit", "")
    assert len(whole) == len(PAPERS["mixit"].items)
