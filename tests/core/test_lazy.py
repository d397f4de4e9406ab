"""Names that are imported on first use: all can be found, completed, and guessed."""

import importlib
import sys

import pytest

import jaxformer

LAZY = (
    "jaxformer",
    "jaxformer.tasks",
    "jaxformer.models.pretrained",
    "theory.signal",
    "theory.rem",
)


@pytest.mark.parametrize("package", LAZY)
def test_tab_completion_shows_names_that_exist(package):
    module = importlib.import_module(package)
    shown = [name for name in dir(module) if not name.startswith("_")]
    assert len(shown) >= 4
    assert not {"Any", "TYPE_CHECKING", "importlib", "sys"} & {*shown}
    for name in shown:
        assert getattr(module, name) is not None


@pytest.mark.parametrize("wrong, right", [("trian", "train"), ("circuit", "circuits")])
def test_a_misspelt_name_is_answered_with_the_right_one(wrong, right):
    with pytest.raises(AttributeError, match=f"no attribute '{wrong}'. Did you mean '{right}'"):
        getattr(jaxformer, wrong)


def test_theories_and_parts_have_plain_names():
    assert jaxformer.theory.__name__ == "theory"
    assert jaxformer.advise.__name__ == "theory.advise"
    assert jaxformer.circuits.find and jaxformer.tasks.Arrays and jaxformer.models.__doc__


def test_a_theory_of_the_user_is_not_taken_for_ours(tmp_path, monkeypatch):
    (tmp_path / "theory").mkdir()
    (tmp_path / "theory/__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "theory", raising=False)
    with pytest.raises(ImportError, match="hides the package theory of jaxformer"):
        _ = jaxformer.theory
    monkeypatch.delitem(sys.modules, "theory")
