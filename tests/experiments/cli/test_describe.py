"""The label of a run in a legend, and the title of its table."""

import pytest
from rich.table import Table

from experiments.cli import describe, flags
from experiments.recipes import train


@pytest.mark.parametrize(
    "config, legend",
    [
        ("configs/mixit/retrieval.py:variant=frozen_qk,scale=tiny", "frozen_qk"),
        ("configs/associations/recall.py:scale=tiny", "associations/recall"),
    ],
)
def test_a_legend_names_the_variant(config, legend):
    assert train.label(flags.load_config(config)) == legend


def test_a_title_names_the_arguments_of_the_config():
    arguments = {"format": "paper", "scale": "tiny", "variant": ""}
    result = {"config": {"name": "mixit/retrieval", "arguments": arguments}, "seeds": [0]}
    assert describe.run_title(result) == "mixit/retrieval, format paper, scale tiny, 1 seed"
    library = {"config": {"name": "Retrieval"}, "seeds": [0, 1]}
    assert describe.run_title(library) == "Retrieval, 2 seeds"


def test_a_narrow_terminal_cuts_no_number(monkeypatch, capsys):
    for name, value in {"FORCE_COLOR": "1", "COLUMNS": "20"}.items():
        monkeypatch.setenv(name, value)
    table = Table("metric", "mean", "meaning", box=None)
    table.add_row("exact_match", "0.9912345", "share of sequences without an error")
    describe.show(table)
    printed = capsys.readouterr().out
    assert "exact_match" in printed and "0.9912345" in printed
