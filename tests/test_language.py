"""The first sentence of every docstring can be read without the name that it belongs to."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("jaxformer", "theory", "experiments", "configs", "benchmarks", "docs", "tests")
FRAGMENT = re.compile(r"(Of|What|Where|Those|As|By|With|How|Like|If|None)\b")


def fragments(text: str) -> list[str]:
    """Returns the first lines of docstrings that begin with a fragment of a sentence."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    lines = [(ast.get_docstring(node) or "").partition("\n")[0] for node in nodes]
    return [line for line in lines if FRAGMENT.match(line)]


def test_docstrings_begin_with_a_verb_or_a_noun():
    lines = [
        f"{file.relative_to(ROOT)}: {line}"
        for folder in FOLDERS
        for file in sorted((ROOT / folder).rglob("*.py"))
        for line in fragments(file.read_text())
    ]
    assert not lines
    code = 'def f():\n    """Of the interval."""\n\ndef g():\n    """Returns the interval."""'
    assert fragments(code) == ["Of the interval."]
