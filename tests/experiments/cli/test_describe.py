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


@pytest.mark.parametrize(
    "tokens, text", [("runs/data/my", "text my"), ("", "text of the packaged chain")]
)
def test_a_title_names_the_text_that_was_read(tokens, text):
    """The argument of the config says "shakespeare" for one's own text, too."""
    config = {"name": "text/lm", "arguments": {"text": "shakespeare"}, "task": {"tokens": tokens}}
    assert describe.run_title({"config": config, "seeds": [0]}) == f"text/lm, {text}, 1 seed"


@pytest.mark.parametrize(
    "name, kind",
    [
        ("in_context_guess", "a trivial predictor"),
        ("p_correct_uniform", "a trivial predictor"),
        ("paper_bert_beta", "printed in the paper"),
        ("exact_alpha_c_64", "exact theory"),
        ("limit_overlap/beta=2", "theory in the limit of infinite size"),
        ("accuracy_gp_limit", "theory in the limit of infinite size"),
        ("theory_radius_beta_2", "theory"),
        ("asymptotic_exponent_beta_0.5", "theory for large sizes"),
    ],
)
def test_theories_and_the_papers_numbers_are_no_trivial_predictors(name, kind):
    assert describe.reference_kind(name) == kind


def test_a_narrow_terminal_cuts_no_number(monkeypatch, capsys):
    for name, value in {"FORCE_COLOR": "1", "COLUMNS": "20"}.items():
        monkeypatch.setenv(name, value)
    table = Table("metric", "mean", "meaning", box=None)
    table.add_row("exact_match", "0.9912345", "share of sequences without an error")
    describe.show(table)
    printed = capsys.readouterr().out
    assert "exact_match" in printed and "0.9912345" in printed
