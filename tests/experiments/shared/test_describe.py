"""A number in words."""

import pytest

from experiments.cli import flags
from experiments.cli.describe import with_error
from experiments.recipes import train


@pytest.mark.parametrize(
    "mean, error, said",
    [
        (0.93271, 0.0474, "0.933 ± 0.047"),
        (0.99984, 0.00086, "0.99984 ± 0.00086"),
        (1.0, 0.0021, "1.0000 ± 0.0021"),
        (0.6, 0.27, "0.60 ± 0.27"),
        (22.134, 3.4, "22.1 ± 3.4"),
        (1.0, 0.0, "1 ± 0"),  # no error is no reason for more digits
        (4567.8, 123.0, "4568 ± 1.2e+02"),
        (1.0, 1e-9, "1 ± 1e-09"),
        (0.35851, None, "0.3585"),
        (0.5, float("nan"), "0.5"),
        (None, None, "-"),
    ],
)
def test_digits_follow_the_error(mean, error, said):
    assert with_error(mean, error) == said


@pytest.mark.parametrize(
    "config, said",
    [
        ("configs/mixit/retrieval.py:variant=frozen_qk,scale=tiny", "frozen_qk"),
        ("configs/associations/recall.py:scale=tiny", "associations/recall"),
    ],
)
def test_a_legend_names_the_variant(config, said):
    assert train.label(flags.load_config(config)) == said
