"""Follows docs/adding.md to the letter in a copy of the tree."""

import os
import re
import shlex
import subprocess
import sys
import textwrap

import pytest

from experiments.cli import flags

# The walks whose commands take seconds, and those that train or start several programs.
QUICK = ("A family", "A recipe")
LONG = ("A figure", "A freezing", "A config", "An option", "A model", "A command", "A table")
PAGE = (flags.ROOT / "docs/adding.md").read_text()


def walks():
    """Returns {heading: its code blocks} in the order of the page."""
    result = {}
    for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
        heading, _, text = part.partition("\n")
        blocks = re.findall(r"(?:^    .*\n(?:\n+(?=    ))?)+", text, re.MULTILINE)
        # A block ends where the next one says its file.
        lines = [textwrap.dedent(block) for block in blocks]
        result[heading] = [
            b.strip("\n")
            for block in lines
            for b in re.split(r"^(?=# \S+\.py\b)", block, flags=re.M)
        ]
    return {heading: [block for block in blocks if block] for heading, blocks in result.items()}


WALKS = walks()
LAST = [*WALKS][-1]


def apply(block, root):
    """Writes a file or inserts the lines of a block; returns (commands, Python) to run."""
    head, _, body = block.partition("\n")
    commands = re.findall(r"^(?:python|jaxformer) .*$", block, re.MULTILINE)
    if not head.startswith("# ") or ".py" not in head:
        return commands, "" if commands else block
    body = "\n".join(line for line in body.split("\n") if line not in commands).rstrip("\n") + "\n"
    name, _, anchor = head.removeprefix("# ").partition(", after: ")
    file = root / name
    if not anchor:
        assert not file.exists(), f"{name} exists already"
        file.parent.mkdir(exist_ok=True)
        file.write_text(body)
        return commands, ""
    lines = file.read_text().split("\n")
    places = [i for i, line in enumerate(lines) if line.strip() == anchor]
    assert places, f"{name} has no line {anchor!r}"
    indent = lines[places[0]][: len(lines[places[0]]) - len(lines[places[0]].lstrip())]
    indent += "    " * anchor.endswith("{")
    new = [indent + line if line else line for line in body.rstrip("\n").split("\n")]
    file.write_text("\n".join([*lines[: places[0] + 1], *new, *lines[places[0] + 1 :]]))
    return commands, ""


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """Returns followed(heading): a copy of the tree with the walks up to this one, and its code."""
    listed = ["git", "-C", str(flags.ROOT), "ls-files", "-co", "--exclude-standard"]
    known = subprocess.run(listed, capture_output=True, text=True).stdout.split("\n")[:-1]

    def follow(last):
        root = tmp_path_factory.mktemp("followed")
        for name in known:
            if (flags.ROOT / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_bytes((flags.ROOT / name).read_bytes())
        for heading, blocks in WALKS.items():
            done = [apply(block, root) for block in blocks]
            if heading == last:
                commands = [command for some, _ in done for command in some]
                return root, commands, [python for _, python in done if python]
        raise AssertionError(f"the page has no walk {last!r}")

    return follow


def run(root, *arguments):
    environment = os.environ | {"PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=root, env=environment, capture_output=True
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()[-3000:]
    return done.stdout.decode()


def test_every_walk_leaves_a_clean_tree(followed):
    root, _, _ = followed(LAST)
    run(root, "-m", "ruff", "check", "--no-cache", ".")
    run(root, "-m", "ruff", "format", "--no-cache", "--check", ".")


BUILD_ADDED = """
from tests import test_configs
files = [f"configs/mixit/{name}.py" for name in ("successor", "mixing_rows", "count")]
assert {*files} <= {*test_configs.NAMES}
assert not test_configs.failures(test_configs.build_config, [(file, "tiny") for file in files])
"""


def test_the_walks_break_no_test_of_the_tables_that_they_edit(followed):
    """A second table of variants once made the first walk break two tests."""
    root, _, _ = followed(LAST)
    files = ("tests/studies/test_variants.py", "tests/test_settings_once.py")
    run(root, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *files)


@pytest.mark.slow
def test_the_tests_of_configs_take_what_was_added(followed):
    root, _, _ = followed(LAST)
    run(root, "-c", BUILD_ADDED)


def headings(*beginnings):
    return [heading for heading in WALKS if heading.startswith(beginnings)]


@pytest.mark.parametrize("heading", headings(*QUICK))
def test_a_walk_ends_with_a_run(followed, heading):
    follow(followed, heading)


@pytest.mark.slow
@pytest.mark.parametrize("heading", headings(*LONG))
def test_a_longer_walk_ends_with_its_runs(followed, heading):
    follow(followed, heading)


def follow(followed, heading):
    root, commands, python = followed(heading)
    for command in commands:
        program, *arguments = shlex.split(command)
        printed = run(root, *(["-m", "jaxformer"] if program == "jaxformer" else []), *arguments)
        assert "changed since it ran" not in printed
    for code in python:
        run(root, "-c", code)


def test_no_walk_is_without_its_test():
    rest = [heading for heading in WALKS if heading not in headings(*QUICK, *LONG)]
    assert rest == ["A task: one class", "A theory"]  # the config after it runs the task
