"""A docstring can be read without the name that it belongs to."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
FRAGMENT = re.compile(r"(Of|What|Where|Those|As|By|With|How|Like|If|None)\b")
MAX_FRAGMENTS = 300  # lower it when the number falls; never raise it


def fragments(text: str) -> list[str]:
    """Returns the first lines of docstrings that begin with a fragment of a sentence."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    lines = [(ast.get_docstring(node) or "").partition("\n")[0] for node in nodes]
    return [line for line in lines if FRAGMENT.match(line)]


def test_docstrings_begin_with_a_verb_or_a_noun():
    found = [
        f"{file.relative_to(ROOT)}: {line}"
        for package in ("jaxformer", "theory", "experiments")
        for file in sorted((ROOT / package).rglob("*.py"))
        for line in fragments(file.read_text())
    ]
    assert len(found) <= MAX_FRAGMENTS, "\n".join(found)


def test_a_fragment_is_noticed():
    code = 'def f():\n    """Of the interval."""\n\ndef g():\n    """Returns the interval."""'
    assert fragments(code) == ["Of the interval."]
