"""A figure is an object, found by its name or by its module."""

import pytest

from experiments.papers.mixit import universality
from experiments.recipes import solve
from jaxformer.core.errors import UserError

OWN = """
from experiments.papers.outcome import Figure

ROWS = Figure(measure=len, draw=len)
half = len
"""


def test_a_figure_of_a_module_needs_no_list(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_figures.py").write_text(OWN)
    assert solve.figure_of("my_figures:ROWS").measure is len
    assert solve.figure_of("universality") is universality.UNIVERSALITY
    for name, message in {
        "universalty": "Did you mean 'universality'",
        "my_figure:ROWS": "there is no module 'my_figure'",
        "my_figures:ROW": "has no Figure 'ROW'. Did you mean 'ROWS'",
        "my_figures:half": r"has no Figure 'half'\..*half = Figure\(measure=\.\., draw=\.\.\)",
    }.items():
        with pytest.raises(UserError, match=message) as error:
            solve.figure_of(name)
        assert "\n" not in str(error.value)


def test_every_figure_of_the_papers_is_an_object_that_an_editor_finds():
    figures = [solve.figure_of(name) for name in solve.FIGURES]
    assert all(callable(figure.measure) and callable(figure.draw) for figure in figures)
    assert sum(figure.check is not None for figure in figures) >= 8


def test_a_module_that_lacks_a_package_says_which(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "needy_figures.py").write_text("import absent_package\n")
    with pytest.raises(ModuleNotFoundError, match="absent_package"):
        solve.figure_of("needy_figures:ROWS")
