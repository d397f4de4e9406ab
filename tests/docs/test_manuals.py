"""Tests that `--help` of every command prints its manual and describes every flag."""

import contextlib
import importlib

from docs import generate


def test_help_is_a_manual_with_every_flag(capsys):
    missing = []
    for name in generate.COMMANDS:
        module = importlib.import_module(name)
        with contextlib.suppress(SystemExit):  # commands of theory end so
            assert module.main(["--help"]) == 0, name
        printed = capsys.readouterr().out
        for action in generate.parser_of(module).flags:
            flag = generate.name_of(action)
            if not generate.manual_lines(flag, generate.manual_of(module), action.help):
                missing.append(f"{name}: {flag} is not described")
            if flag != "--help" and flag not in printed:
                missing.append(f"{name}: {flag} is not printed")
    assert not missing
