"""Three digits and a small drawing for each claim: both say what the rule says."""

import re

import pytest

from experiments.ledger import headline
from experiments.ledger.rules import HELD, NOT_HELD
from experiments.site.digits import three_digits
from experiments.site.thumbnails import thumbnail


@pytest.mark.parametrize(
    "text, expected",
    [
        ("0.999978 ± 0.000052", "1.000 ± <0.001"),
        ("1.0000 ± 0.0021 against 1", "1.000 ± 0.002 against 1"),
        (
            "0.3238 ± 0.0037 against 0.5, required below",
            "0.324 ± 0.004 against 0.5, required below",
        ),
        ("-0.316 ± 0.036 against -0.6388", "-0.316 ± 0.036 against -0.639"),
        ("0.00010256 ± 0.00000037", "0.000103 ± <0.000001"),
        ("12.34 ± 0.56", "12.3 ± 0.6"),
        ("123456 ± 1200", "123456 ± 1200"),
        ("1 ± 1.4e-07 against 0.99", "1.000 ± <0.001 against 0.99"),
        ("nan", "nan"),
    ],
)
def test_numbers_have_three_digits_and_no_more_than_their_error_leaves(text, expected):
    assert three_digits(text) == expected


def test_two_numbers_that_would_become_equal_keep_their_digits():
    text = "0.12345 ± 0.00001 against 0.12341 ± 0.00001, required "
    assert three_digits(text + "above") == text + "above"
    assert three_digits(text + "at most 0.02 below").startswith("0.123 ± <0.001 against 0.123")


def test_the_measured_number_lies_in_the_grey_part_if_and_only_if_the_rule_held(published_rows):
    n_drawn = 0
    for row in published_rows:
        if not (drawn := thumbnail(row)):
            assert not headline.decisive_numbers(row)[1], row.item.name
            continue
        if (verdict := headline.verdict(row)) not in (HELD, NOT_HELD):
            continue
        (box,) = re.findall(r'<rect class="asked" x="([\d.]+)".*? width="([\d.]+)"', drawn)
        start, width = map(float, box)
        dot = float(re.findall(r'<circle class="dot s0" cx="([\d.]+)"', drawn)[0])
        distance = max(start - dot, dot - start - width)
        assert distance <= 0.2 if verdict == HELD else distance >= -0.2, row.item.name
        n_drawn += 1
    assert n_drawn > 60


def test_config_names_do_not_reach_a_label(published_rows):
    labels = [
        text
        for row in published_rows
        for text in re.findall(r'"value"[^>]*>([^<]*)<', thumbnail(row))
    ]
    assert "Frozen-QK" in labels
    assert not [text for text in labels if "_" in text or not text]
