"""The explanation of a verdict: its text and its drawing agree with the rule."""

import re

import pytest

from experiments.ledger.item import Cell, Item, Paper
from experiments.ledger.ledger import Row
from experiments.ledger.rules import Side, above, near, of, trivial
from experiments.site.why import why
from jaxformer.stats.differences import Number

CELLS = {"one": Cell("a.py"), "two": Cell("b.py")}
ITEM = Item("Table 1", "A claim.", CELLS)
ROW = Row(Paper("p", "title", "source", (ITEM,)), ITEM, {}, [], "", [])
KNOWN = {"one": Number(0.9, 0.01, 3), "two": Number(0.5, 0.02, 3), "guess": Number(0.1)}


def explained(rule, **known):
    """Returns the finding's verdict, the text of the explanation, and its HTML."""
    numbers = KNOWN | known

    def read(side: Side):
        if not side.metric:
            return Number(side.value)
        return numbers[side.metric if side.is_baseline else side.cell]

    finding = rule.judge("it is so", read)
    html = why(ROW, finding, rule)
    plain_text = re.sub(r"<[^>]*>", "", html)
    return finding.verdict, plain_text, html


@pytest.mark.parametrize(
    "rule, verdict, expected_text",
    [
        (
            above(of("one"), of("two"), by=0.2),
            "held",
            "accuracy of one is above accuracy of two by",
        ),
        (above(of("two"), of("one")), "did not hold", "so the whole interval lies below 0"),
        (above(of("one"), 0.89), "cannot tell yet", "the border, 0, lies inside the interval"),
        (near(of("one"), 0.9, 0.1), "held", "is within 0.1 of 0.9"),
        (near(of("one"), of("two"), 0.1), "did not hold", "does not lie within 0.1"),
        (
            above(of("one"), trivial("two", "guess"), -0.1),
            "held",
            "no more than 0.1 below the base",
        ),
    ],
)
def test_the_text_states_the_comparison_and_the_verdict_of_the_rule(rule, verdict, expected_text):
    judged, text, html = explained(rule)
    assert judged == verdict and expected_text in text, text
    assert f'class="why {verdict.replace(" ", "-")}" data-rule=' in html


def test_the_interval_has_the_digits_of_its_width():
    _, text, _ = explained(above(of("one"), of("two")))
    assert re.search(
        r"The difference is 0\.\d{3}, its 95 % interval 0\.\d{3} to 0\.\d{3} \(3 seeds", text
    )


def test_an_unknown_error_has_no_interval_and_no_drawing():
    verdict, text, html = explained(above(of("one"), of("two")), one=Number(0.9, float("nan"), 1))
    assert verdict == "cannot tell yet" and "the error is unknown, so the rule is undecided" in text
    assert "data-rule" not in html
    assert (
        "They differ by 0.4, without an error"
        in explained(above(of("one"), of("two")), one=Number(0.9), two=Number(0.5))[1]
    )


def test_the_drawing_has_the_difference_its_interval_and_the_borders():
    numbers = {"one": Number(0.9), "two": Number(0.5)}
    assert 'data-rule="0.4 0 0.1"' in explained(above(of("one"), of("two"), 0.1), **numbers)[2]
    assert 'data-rule="0.4 0 -0.2 0.2"' in explained(near(of("one"), of("two"), 0.2), **numbers)[2]
