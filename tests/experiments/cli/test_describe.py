"""The label of a run in a legend."""

import pytest

from experiments.cli import flags
from experiments.recipes import train


@pytest.mark.parametrize(
    "config, said",
    [
        ("configs/mixit/retrieval.py:variant=frozen_qk,scale=tiny", "frozen_qk"),
        ("configs/associations/recall.py:scale=tiny", "associations/recall"),
    ],
)
def test_a_legend_names_the_variant(config, said):
    assert train.label(flags.load_config(config)) == said
