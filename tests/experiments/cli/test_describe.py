"""The label of a run in a legend, and the title of its table."""

import pytest

from experiments.cli import describe, flags
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


def test_a_title_names_the_arguments_of_the_config():
    arguments = {"format": "paper", "scale": "tiny", "variant": ""}
    result = {"config": {"name": "mixit/retrieval", "arguments": arguments}, "seeds": [0]}
    assert describe.run_title(result) == "mixit/retrieval, format paper, scale tiny, 1 seed"
    library = {"config": {"name": "Retrieval"}, "seeds": [0, 1]}
    assert describe.run_title(library) == "Retrieval, 2 seeds"
