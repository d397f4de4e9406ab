"""Imports point one way: jaxformer <- theory <- experiments; configs stand alone."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ALLOWED = {
    "jaxformer": {"jaxformer"},
    "theory": {"jaxformer", "theory"},
    "configs": {"configs"},
    "experiments": {"jaxformer", "theory", "configs", "experiments"},
}
HEAVY = {"tensorflow_datasets", "tensorflow", "transformers", "torch", "matplotlib", "numpyro"}
FLAX_ROOMS = {"models", "capture.py"}
FILES = [path for room in ALLOWED for path in sorted((ROOT / room).rglob("*.py"))]


def imports(tree: ast.Module, top_level_only: bool = False) -> set[str]:
    nodes = tree.body if top_level_only else ast.walk(tree)
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module)
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_one_way(path):
    tree, parts = ast.parse(path.read_text()), path.relative_to(ROOT).parts
    upward = imports(tree) & set(ALLOWED) - ALLOWED[parts[0]]
    assert not upward, f"{path} imports {upward}: the flow is jaxformer <- theory <- experiments"
    assert not imports(tree, top_level_only=True) & HEAVY, "import heavy packages where used"
    if "flax" in imports(tree):
        assert parts[0] == "jaxformer" and parts[1] in FLAX_ROOMS, "only models/ imports flax"
