"""docs/derivations.md names rows and tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/derivations.md").read_text()


def test_the_named_tests_exist():
    functions = set()
    for file in (ROOT / "tests").rglob("test_*.py"):
        functions.update(re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE))
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 20 and not named - functions
