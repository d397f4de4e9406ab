"""The functions of a figure are found by its name or by its module."""

import pytest

from experiments.recipes import solve
from jaxformer.core.errors import UserError


def test_a_figure_of_a_module_needs_no_list(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_figures.py").write_text("measure_rows = draw_rows = measure_half = len\n")
    assert solve.functions("my_figures:rows") == (len, len)
    by_name, by_module = (
        solve.functions(name)
        for name in ("universality", "experiments.papers.mixit.universality:universality")
    )
    assert by_name == by_module
    for name, message in {
        "universalty": "Did you mean 'universality'",
        "my_figure:rows": "there is no module 'my_figure'",
        "my_figures:row": "has no measure_row. Did you mean 'measure_rows'",
        "my_figures:half": "has no draw_half",
    }.items():
        with pytest.raises(UserError, match=message) as error:
            solve.functions(name)
        assert "\n" not in str(error.value)


def test_a_module_that_lacks_a_package_says_which(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "needy_figures.py").write_text("import absent_package\n")
    with pytest.raises(ModuleNotFoundError, match="absent_package"):
        solve.functions("needy_figures:rows")
