"""Imports point one way: jaxformer <- theory <- experiments; configs stand alone."""

import ast
import pkgutil
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import jaxformer

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "jaxformer": {"jaxformer"},
    "theory": {"jaxformer", "theory"},
    "configs": {"configs", "jaxformer"},
    "experiments": {"jaxformer", "theory", "configs", "experiments"},
}
# The packages of jaxformer that each of them may import.
LAYERS = {
    "core": set(),
    "stats": {"core"},
    "report": {"core", "io"},
    "runtime": {"core"},
    "io": {"core", "runtime"},
    "models": {"core", "io", "runtime"},
    "data": {"core", "io", "runtime", "models"},
    "tasks": {"core", "data", "models"},
    "interp": {"core", "stats", "report", "io", "runtime", "models"},
    "training": {"core", "report", "io", "runtime", "models", "data", "tasks", "interp"},
    "planning": {"core", "io", "models", "tasks", "training"},
    "studies": {
        *("core", "stats", "report", "io", "runtime", "models", "data", "tasks", "interp"),
        *("training", "build", "loading", "api"),
    },
}
# The console command, which is a process of its own.
CONSOLE = "jaxformer.__main__"
# The public names, such as `jaxformer.theory`: it only says where they are.
NAMES = "jaxformer"
HEAVY = {"tensorflow_datasets", "tensorflow", "transformers", "torch", "matplotlib", "numpyro"}
MAX_ROOT_MODULES = 6
FILES = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]


def name_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(file): file for file in FILES}


def imported(tree: ast.Module, top_level_only: bool = False, with_strings: bool = True) -> set[str]:
    """The names that a module imports: on its first lines, later on, or for type checkers.

    A string that is the name of a module counts too, because `importlib` may be given it, unless
    `with_strings` is False.
    """
    names, nodes = set(), list(tree.body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name if name in MODULES else node.module for name in whole}
        elif isinstance(node, ast.Constant) and "." in str(node.value) and not top_level_only:
            names |= {node.value} & MODULES.keys() if with_strings else set()
        elif not top_level_only:
            nodes += ast.iter_child_nodes(node)
    return names


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    return {name: ast.parse(file.read_text()) for name, file in MODULES.items()}


@pytest.fixture(scope="module")
def imports(trees) -> dict[str, set[str]]:
    return {name: imported(tree) for name, tree in trees.items()}


def test_packages_import_downward_only(imports):
    upward = {
        name: bad
        for name, names in imports.items()
        if name not in (CONSOLE, NAMES)
        and (
            bad := {n.split(".")[0] for n in names} & PACKAGES.keys() - PACKAGES[name.split(".")[0]]
        )
    }
    assert not upward, f"the flow is jaxformer <- theory <- experiments: {upward}"


def test_packages_of_jaxformer_import_their_layers_only(imports):
    problems = {}
    for name, names in imports.items():
        top, *parts = name.split(".")
        if top != "jaxformer" or len(parts) < 2 or parts[0] not in LAYERS:
            continue
        used = {n.split(".")[1] for n in names if n.startswith("jaxformer.")}
        if bad := used - LAYERS[parts[0]] - {parts[0]}:
            problems[name] = bad
    assert not problems


def test_no_import_cycle(imports):
    graph = {name: names & MODULES.keys() - {name} for name, names in imports.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")


def package_of(name: str) -> str:
    """Returns "experiments.ledger" for experiments.ledger.rules; a command counts by itself."""
    return ".".join(name.split(".")[:2])


def test_no_import_cycle_between_packages(trees):
    """Files may be free of cycles where their packages are not: eight were one circle.

    Names in strings do not count: the table of commands has them all.
    """
    graph: dict[str, set[str]] = {}
    for name, tree in trees.items():
        names = imported(tree, with_strings=False)
        used = {package_of(n) for n in names & MODULES.keys()}
        graph.setdefault(package_of(name), set()).update(used - {package_of(name)})
    # The names of a whole package, such as `jaxformer`, lead everywhere and decide nothing.
    graph = {name: {n for n in used if "." in n} for name, used in graph.items() if "." in name}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"packages import each other: {' -> '.join(error.args[1])}")


def test_heavy_packages_are_imported_where_they_are_used(trees):
    problems = {
        name: bad
        for name, tree in trees.items()
        if (bad := HEAVY & {n.split(".")[0] for n in imported(tree, top_level_only=True)})
    }
    assert not problems


def test_only_models_import_flax(imports):
    problems = [
        name
        for name, names in imports.items()
        if any(n.split(".")[0] == "flax" for n in names) and not name.startswith("jaxformer.models")
    ]
    assert not problems


def test_the_root_of_the_package_is_small():
    files = [f.name for f in (ROOT / "jaxformer").glob("*.py") if f.name != "__init__.py"]
    assert len(files) <= MAX_ROOT_MODULES, files


def test_no_package_has_the_name_of_a_public_function():
    """Its import would put a module in the place of the function."""
    packages = {module.name for module in pkgutil.iter_modules(jaxformer.__path__)}
    assert {"planning", "training"} <= packages
    functions = {name for name, place in jaxformer._PLACES.items() if ":" in place}
    assert not packages & functions


@pytest.mark.parametrize(
    "first",
    ["jaxformer.planning.compile_plan", pytest.param("jaxformer.api", marks=pytest.mark.slow)],
)
def test_plan_is_the_function_after_every_import_order(first):
    code = f"""
import jaxformer, {first}, jaxformer.planning.plan
assert jaxformer.plan.__module__ == "jaxformer.api" and callable(jaxformer.plan)
import jaxformer.planning.compile_plan
from jaxformer import plan
assert plan is jaxformer.plan and callable(plan)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_names_for_type_checkers_and_importlib_count():
    code = """
if TYPE_CHECKING:
    from experiments.run import main
OBJECTS = {"confirm": ("experiments.confirm", "main")}
def load():
    import experiments.demo
"""
    found = imported(ast.parse(code))
    assert found == {"experiments.run", "experiments.confirm", "experiments.demo"}


def test_a_cycle_is_noticed():
    with pytest.raises(CycleError):
        TopologicalSorter({"a": {"b"}, "b": {"a"}}).prepare()
