"""Every command prints its manual when asked for it alone, and says what each word of it does."""

import contextlib
import importlib

import pytest

from docs import generate


@pytest.mark.parametrize("name", generate.COMMANDS)
def test_help_is_a_manual_with_every_flag(name, capsys):
    module = importlib.import_module(name)
    with contextlib.suppress(SystemExit):  # theory's end so
        assert module.main(["--help"]) == 0
    printed = capsys.readouterr().out
    silent = []
    for action in generate.parser_of(module).flags:
        flag = generate.name_of(action)
        said = generate.said_of(flag, generate.manual_of(module), action.help)
        silent += [flag] * (not said)
        assert flag == "--help" or flag in printed, f"{flag} is not printed"
    assert not silent
