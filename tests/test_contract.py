"""The parts of the project on which records and papers of others depend.

Claims (cells and the arithmetic of rules), verdicts with their numbers, and the options of every
command are compared with `reference/contract.json`. A deliberate change writes that file again:

    python -m tests.test_contract
"""

import hashlib
import importlib
import json
import runpy
import sys
from pathlib import Path

import pytest

from docs.generate import COMMANDS, parser_of
from experiments.cli.flags import ROOT, WORKSPACE
from experiments.ledger import read
from experiments.ledger.ledger import Row, ledger
from experiments.papers import PAPERS

REFERENCE = Path(__file__).parent / "reference/contract.json"


def claims() -> dict[str, str]:
    """Returns a hash for each item of each paper. Sentences are left out: they may be reworded."""
    return {
        f"{paper.key}: {item.name}": _digest(
            [
                [(name, *cell) for name, cell in item.cells.items()],
                [list(rule) for rule in item.rules.values()],
                [list(rule) for rule in item.checks.values()],
                [item.metric, item.baseline, item.late, item.flags],
            ]
        )
        for paper in PAPERS.values()
        for item in paper.items
    }


def verdicts(rows: list[Row]) -> dict[str, list[str]]:
    """Returns for each item its verdict, then the verdict and numbers of each rule."""
    return {
        f"{row.paper.key}: {row.item.name}": [
            row.verdict,
            *(f"{finding.verdict}: {finding.numbers}" for finding in row.findings),
            *(f"{finding.verdict}: {finding.numbers} (check)" for finding in row.checks),
        ]
        for row in rows
    }


def options() -> dict[str, list[str]]:
    """Returns the options of each command's parser."""
    return {
        command: sorted(
            name
            for flag in parser_of(importlib.import_module(command)).flags
            for name in flag.option_strings
            if name.startswith("--")
        )
        for command in COMMANDS
    }


def _digest(value) -> str:
    return hashlib.sha256(json.dumps(value, default=dict).encode()).hexdigest()[:16]


def _differences(expected: dict, got: dict) -> list[str]:
    return [
        f"{name}: expected {expected.get(name)}, got {got.get(name)}"
        for name in sorted(expected.keys() | got.keys())
        if expected.get(name) != got.get(name)
    ]


def test_cells_and_rules_of_all_claims_are_unchanged():
    assert not _differences(json.loads(REFERENCE.read_text())["claims"], claims())


def test_verdicts_and_their_numbers_are_unchanged(real_rows):
    assert not _differences(json.loads(REFERENCE.read_text())["verdicts"], verdicts(real_rows))


def test_no_command_lost_an_option():
    expected, got = json.loads(REFERENCE.read_text())["options"], options()
    lost = {name: set(names) - set(got.get(name, [])) for name, names in expected.items()}
    assert not {name: names for name, names in lost.items() if names}


@pytest.mark.parametrize(
    "script", ["tests.test_contract", "theory.rem.make_tables", "experiments.site.build_table"]
)
def test_help_of_a_script_without_options_writes_no_file(script, monkeypatch):
    monkeypatch.setattr(sys, "argv", [script, "--help"])
    with pytest.raises(SystemExit, match=f"python -m {script}"):
        runpy.run_path(str(ROOT / f"{script.replace('.', '/')}.py"), run_name="__main__")


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(__doc__)  # there are no options
    rows = ledger(PAPERS, read.load(WORKSPACE / "results")[0])
    content = {"claims": claims(), "verdicts": verdicts(rows), "options": options()}
    REFERENCE.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
