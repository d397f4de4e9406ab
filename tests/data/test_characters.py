"""Texts of symbols, from which the tasks draw."""

import pytest

from jaxformer.core.errors import UserError
from jaxformer.data import characters
from jaxformer.tasks.text import training_counts


def test_a_text_that_is_too_long_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(characters, "MAX_SYMBOLS", 2)
    file = tmp_path / "long.txt"
    file.write_bytes(b"\xff" * 9)  # no UTF-8, which a reader would notice first
    with pytest.raises(UserError, match="is too long: at most 2 symbols"):
        characters.characters(str(file))
    file = tmp_path / "short.txt"
    file.write_text("abc")
    with pytest.raises(UserError, match="is too long: at most 2 symbols"):
        characters.characters(str(file))


def test_a_text_that_was_written_again_is_read_again(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("abababab" * 20)
    before = characters.characters(str(file))
    assert characters.characters(str(file)) is before
    assert characters.statistics(str(file), 2).symbols == ("a", "b")
    file.write_text("xyxyxyxyx" * 20)
    assert characters.characters(str(file)).symbols == ("x", "y")
    assert characters.statistics(str(file), 2).symbols == ("x", "y")
    assert training_counts(str(file)).symbols == ("x", "y")
