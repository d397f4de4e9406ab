"""A hash of the code that judges, by which a plan notices that it was changed.

The hash covers every statement of the judging modules but docstrings, comments and the imports at
their tops, in any order. So code may move to another module, because that changes import lines
only; a changed operator or constant gives another hash.
"""

import ast
import hashlib
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

# The first two plans hold a hash that covered the imports too, and the modules in their order.
# Here is what the same files of the plans' commits hash to now (tests/experiments/
# test_judging_code.py repeats both hashes from the files of these commits).
WITHOUT_IMPORTS = {
    "010aa3f6aa45f8aa": "75ec447f172b43e6",  # confirmation/PLAN.json, commit fff60735
    "d122f93b076adc2b": "f5501fa43e8653b7",  # ladders/PLAN.json, commit 1e33e55e
}


def is_unchanged(code: str, modules: Iterable[ModuleType]) -> bool:
    """Whether judging modules are those of a plan, of which `code` is the hash."""
    return WITHOUT_IMPORTS.get(code, code) == code_digest(modules)


def code_digest(modules: Iterable[ModuleType]) -> str:
    return digest_of_sources(Path(str(module.__file__)).read_text() for module in modules)


def digest_of_sources(sources: Iterable[str]) -> str:
    """The hash of judging modules that are given as text."""
    statements = sorted(s for source in sources for s in _statements(source))
    return hashlib.sha256("\n".join(statements).encode()).hexdigest()[:16]


def _statements(source: str) -> list[str]:
    """The statements of a module, docstrings inside them replaced by `pass`.

    Imports inside functions stay: they say which function of scipy gives a quantile.
    """
    tree = ast.parse(source)
    kept = [node for node in tree.body if not (_is_docstring(node) or _is_import(node))]
    for node in (inner for statement in kept for inner in ast.walk(statement)):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_docstring(body[0]):
            body[0] = ast.Pass()
    return [ast.unparse(node) for node in kept]


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)
