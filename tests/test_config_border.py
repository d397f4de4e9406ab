"""Only jaxformer/build.py, the recipes and the makers of configs read a config.

The other modules take settings and objects, and can be used without a config.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SECTIONS = {
    "task", "model", "optim", "train", "data", "devices", "seed", "n_seeds", "unfreeze",
    "partition", "figure", "recall", "bayes", "posterior", "measure",
}  # fmt: skip
NAMES = {"config", "cfg"}
# Modules that read the config.json of published models.
HUB = [*(ROOT / "jaxformer/models/pretrained").rglob("*.py")]
FILES = [
    file
    for package in ("jaxformer", "experiments")
    for file in sorted((ROOT / package).rglob("*.py"))
    if file not in HUB
]
# Modules that make the config of a user's task before they build it.
MAKERS = [
    ROOT / "experiments/anatomy_report/config_subjects.py",
    *(ROOT / "jaxformer/studies/anatomy" / name for name in ("sources.py", "subject.py")),
]
INSIDE = [ROOT / "jaxformer/build.py", *(ROOT / "experiments/recipes").glob("*.py"), *MAKERS]


def is_config(node: ast.expr) -> bool:
    """Returns whether a node is `config` or `x.config`."""
    return (isinstance(node, ast.Name) and node.id in NAMES) or (
        isinstance(node, ast.Attribute) and node.attr == "config"
    )


def reads(tree: ast.AST) -> list[str]:
    """Returns a line such as "line 3: config.model" for each section that the code reads.

    A call such as `text.partition(..)` reads no section.
    """
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return sorted(
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and is_config(node.value)
        and node.attr in SECTIONS
        and node not in called
    )


def defaults(tree: ast.AST) -> list[str]:
    """Returns a line for each `config.get(key, default)`; configs write out every field."""
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "get"
        and is_config(node.func.value)
        and len(node.args) > 1
    ]


def test_what_is_looked_for_is_found():
    code = "x = config.model.width\ny = asked.config.n_seeds\nz = config.get('seed', 0)\nsetup.task"
    tree = ast.parse(code)
    assert reads(tree) == ["line 1: config.model", "line 2: asked.config.n_seeds"]
    assert defaults(tree) == ["line 3: config.get('seed', 0)"]
    assert reads(ast.parse((ROOT / "jaxformer/build.py").read_text()))


def test_a_config_is_read_at_the_border_only():
    trees = {str(file.relative_to(ROOT)): ast.parse(file.read_text()) for file in FILES}
    with_defaults = {name: lines for name, tree in trees.items() if (lines := defaults(tree))}
    assert not with_defaults, "write the field out in configs/common.py"
    inside = {str(file.relative_to(ROOT)) for file in INSIDE}
    outside = {name: lines for name, tree in trees.items() if (lines := reads(tree))}
    outside = {name: lines for name, lines in outside.items() if name not in inside}
    assert not outside, "read it in jaxformer/build.py or in a recipe, and pass the value"


def test_a_free_argument_takes_any_value():
    from configs.arguments import FreeText, parse

    choices = {"scale": ("tiny", "small"), "tokens": FreeText(("default",))}
    assert parse("", **choices) == {"scale": "tiny", "tokens": "default"}
    given = parse("tokens=a/b=c,d{1,2},scale=small", **choices)
    assert given == {"scale": "small", "tokens": "a/b=c,d{1,2}"}
    with pytest.raises(ValueError, match=r"unknown config argument 'x'. Give .*tokens=TEXT"):
        parse("x,tokens=a", **choices)
