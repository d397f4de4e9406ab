"""Judging code may move between modules, but a plan refuses it once a judging line differs.

The two committed plans were hashed with imports and in the order of their modules. Two facts let
them accept moved code and nothing else: the hash that they hold is that of certain files of their
commits, and these files hash to the value of `WITHOUT_IMPORTS` if imports are left out.
"""

import ast
import hashlib
import subprocess
from pathlib import Path

import pytest

from experiments.confirmation import judging_code, plan
from experiments.ladders import plan as ladder_plan
from jaxformer.core.errors import UserError

ROOT = Path(__file__).parents[2]
LEDGER = "experiments/ledger/{}.py"
LADDERS = "experiments/ladders/{}.py"
# Plan -> its commit, and the files that judged there: `git show fff60735:experiments/ledger/..`.
COMMITS = {
    "confirmation/PLAN.json": (
        "fff60735",
        [LEDGER.format(n) for n in ("statistics", "record_numbers", "rules", "multiplicity")],
    ),
    "ladders/PLAN.json": (
        "1e33e55e",
        [
            *(LEDGER.format(name) for name in ("statistics", "record_numbers", "trend")),
            *(LADDERS.format(name) for name in ("rule", "judgement")),
        ],
    ),
}
NOW = {
    "confirmation/PLAN.json": (plan.read, plan.JUDGING_MODULES),
    "ladders/PLAN.json": (ladder_plan.read, ladder_plan.JUDGING_MODULES),
}
SOURCE = '''"""Judges."""

import math

def verdict(low: float, border: float) -> bool:
    """Whether the interval lies above."""
    return low > border  # all of it

def half(x: float) -> float:
    return 0.5 * math.fabs(x)
'''


def earlier_hash(sources: list[str]) -> str:
    """The hash when the plans were made: all statements, imports too, in the modules' order."""
    digest = hashlib.sha256()
    for source in sources:
        tree = ast.parse(source)
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if isinstance(body, list) and body and judging_code._is_docstring(body[0]):
                body[0] = ast.Pass()
        digest.update(ast.unparse(tree).encode())
    return digest.hexdigest()[:16]


def defined_names(tree: ast.Module) -> set[str]:
    """The functions, classes and constants at the top of a module."""
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    stored = (part for node in assigned for target in node.targets for part in ast.walk(target))
    return names | {part.id for part in stored if isinstance(part, ast.Name)}


@pytest.mark.parametrize("file", COMMITS)
def test_the_files_of_a_plans_commit_have_both_hashes(file):
    commit, names = COMMITS[file]
    shown = [
        subprocess.run(["git", "show", f"{commit}:{name}"], cwd=ROOT, capture_output=True)
        for name in names
    ]
    if any(answer.returncode for answer in shown):
        pytest.skip(f"this clone has no commit {commit}")
    sources = [answer.stdout.decode() for answer in shown]
    held = NOW[file][0](ROOT / file).code
    assert earlier_hash(sources) == held
    assert judging_code.digest_of_sources(sources) == judging_code.WITHOUT_IMPORTS[held]


@pytest.mark.parametrize("file", COMMITS)
def test_the_code_of_today_judges_as_that_of_the_committed_plan(file):
    read, modules = NOW[file]
    assert judging_code.is_unchanged(read(ROOT / file).code, modules)


def test_code_that_moves_keeps_its_hash():
    top, verdict, half = SOURCE.partition("def verdict")[0], *SOURCE.split("def ")[1:]
    moved = [f"def {half}", f"from judges import half\n{top}def {verdict}"]
    assert judging_code.digest_of_sources([SOURCE]) == judging_code.digest_of_sources(moved)


@pytest.mark.parametrize(
    "change",
    [("low > border", "low >= border"), ("0.5", "0.6"), ("fabs", "sqrt"), ("def half", "def h")],
)
def test_a_changed_line_has_another_hash(change):
    changed = SOURCE.replace(*change)
    assert changed != SOURCE
    assert judging_code.digest_of_sources([SOURCE]) != judging_code.digest_of_sources([changed])


@pytest.mark.parametrize("file", COMMITS)
def test_a_changed_operator_in_a_judging_module_is_refused(file, tmp_path):
    read, modules = NOW[file]
    held = read(ROOT / file).code
    original = Path(modules[0].__file__).read_text()
    changed = tmp_path / "differences.py"
    changed.write_text(original.replace("self.low > border", "self.low >= border"))
    assert changed.read_text() != original
    sources = [changed.read_text(), *(Path(m.__file__).read_text() for m in modules[1:])]
    assert judging_code.digest_of_sources(sources) != judging_code.WITHOUT_IMPORTS[held]


def test_a_plan_made_today_refuses_a_changed_operator(monkeypatch):
    made = plan.with_hash(
        plan.Plan("t", (), {}, judging_code.code_digest(plan.JUDGING_MODULES), "")
    )
    plan.check(made, {})
    read_text = Path.read_text
    monkeypatch.setattr(
        Path, "read_text", lambda file: read_text(file).replace("low > border", "low >= border")
    )
    with pytest.raises(UserError, match="another version of differences"):
        plan.check(made, {})


@pytest.mark.parametrize("file", COMMITS)
def test_judging_modules_take_judging_code_from_each_other(file):
    # The hash leaves imports out, so a look-alike of `difference` elsewhere must not slip in.
    modules = {module.__name__: Path(module.__file__) for module in NOW[file][1]}
    trees = {name: ast.parse(path.read_text()) for name, path in modules.items()}
    defined = {name for tree in trees.values() for name in defined_names(tree)}
    for name, tree in trees.items():
        for node in [node for node in tree.body if isinstance(node, ast.ImportFrom)]:
            judging = {alias.name for alias in node.names} & defined
            assert not judging or node.module in modules, (name, node.module, judging)
