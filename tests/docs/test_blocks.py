"""Every code block of README and docs runs or states why not; every command can be parsed."""

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.docs import commands, given
from tests.docs.blocks import COMMAND, LANGUAGES, ROOT, Block, inline, of_page, pages
from tests.helpers import failures

PAGES = pages()
BLOCKS = {name: of_page(name, text) for name, text in PAGES.items()}
NUMBER = re.compile(r"[-+]?\d[\d.,]*(e[-+]?\d+)?")
TIME = re.compile(r"\d[\d.]* (s|min|h|CPU s)\b|\d[\d.]* [KMG]iB")


def is_run(block: Block) -> bool:
    """Returns whether this file runs the block."""
    return block.language in ("python", "sh", "console") and not block.comment.keys() & {
        "needs",
        "tested",
    }


def is_quick(block: Block) -> bool:
    return is_run(block) and block.language == "python" and "slow" not in block.comment


def test_every_block_has_a_language_and_a_test():
    """A block that another test runs must name that test, and the test must name the page."""
    # The blocks of docs/adding.md are indented, as tests/test_adding.py reads them.
    blocks = [b for page in PAGES if page != "docs/adding.md" for b in BLOCKS[page]]
    for block in blocks:
        page = block.page
        other = block.comment.get("tested", "").partition(",")[0]
        assert block.language in LANGUAGES, f"{block.place}: {block.language}"
        assert not other or page.split("/")[-1] in (ROOT / other).read_text(), block.place
        assert block.language in ("sh", "console") or not re.search(
            f"^{COMMAND.pattern}", block.text, re.M
        ), f"{block.place}: commands in a block of {block.language}"


def test_the_commands_of_all_pages_are_understood(monkeypatch, capsys):
    """Also checks files, targets, extras, configs and fields, and commands in sentences."""
    lines = [(page, line) for page in PAGES for line in inline(PAGES[page])]
    blocks = [block for page in PAGES for block in BLOCKS[page]]
    lines += [(block.place, line) for block in blocks for line in block.commands()]
    assert len(lines) > 100
    assert not failures(lambda place, line: commands.check(line, monkeypatch), lines)


def test_what_the_blocks_import_exists():
    """The quick suite does not run all of them, so that a renamed function is still noticed."""
    named = {
        (name, alias.name)
        for page in PAGES
        for block in BLOCKS[page]
        if is_run(block) and block.language == "python"
        for node in ast.walk(ast.parse(block.text))
        if isinstance(node, ast.ImportFrom)
        and (name := node.module or "").startswith(("jaxformer", "theory", "experiments"))
        for alias in node.names
    }
    assert len(named) > 30

    def exists(module: str, name: str) -> None:
        if not hasattr(importlib.import_module(module), name):
            importlib.import_module(f"{module}.{name}")

    assert not failures(exists, sorted(named))


# The walks run them. Their calls are those of tests of patches, wrapped modules and optimizers; of
# tasks/test_arrays.py, models/test_wrap.py and training/test_user_optimizer.py.
SLOW_PAGES = ("docs/recipes.md", "docs/own.md")
QUICK_PAGES = [
    pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW_PAGES))
    for name in PAGES
    if any(map(is_quick, BLOCKS[name]))
]


@pytest.mark.parametrize("page", QUICK_PAGES)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    """The blocks run from top to bottom in one namespace, as in a notebook."""
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in filter(is_quick, BLOCKS[page]):
        execute(block, names)


@pytest.mark.slow
@pytest.mark.parametrize("page", [name for name in PAGES if any(map(is_run, BLOCKS[name]))])
def test_the_walk_of_a_page(page, tmp_path, monkeypatch):
    """All blocks run in order in one folder, and print what the page shows."""
    monkeypatch.chdir(tmp_path)
    for name in ("experiments", "configs", "docs", "results", "Makefile"):
        (tmp_path / name).symlink_to(ROOT / name)
    names = {}
    for block in filter(is_run, BLOCKS[page]):
        if block.language == "python":
            execute(block, names)
        for line in block.commands():
            printed = shell(line, tmp_path)
            if block.language == "console":
                compare(block, line, printed)


def execute(block: Block, names: dict) -> None:
    if "given" in block.comment:
        names |= given.GIVEN[block.comment["given"]]()
    exec(compile(block.text, block.place, "exec"), names)


def shell(line: str, folder) -> str:
    """Returns what a line prints on both streams in a user's environment."""
    (folder / "bin").mkdir(exist_ok=True)
    for name, command in {"python": "", "jaxformer": "-m jaxformer "}.items():
        if not (folder / "bin" / name).exists():
            program = f'#!/bin/sh\nexec {sys.executable} {command}"$@"\n'
            (folder / "bin" / name).write_text(program)
            (folder / "bin" / name).chmod(0o755)
    unset = ("XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {
        "PATH": f"{folder / 'bin'}:{environment['PATH']}",
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "100",
    }
    bash = shutil.which("bash")  # completion is a feature of bash and zsh
    done = subprocess.run(
        line, shell=True, executable=bash, cwd=folder, env=environment, capture_output=True
    )
    assert done.returncode == 0, f"{line}\n{(done.stdout + done.stderr).decode()[-3000:]}"
    return (done.stdout + done.stderr).decode()


def compare(block: Block, command: str, printed: str) -> None:
    """Checks that the lines below a command are printed in order; times and memory may differ."""
    text = re.sub(r"\\\n\s*", "", block.text)
    below = "\n" + text.partition(f"$ {command}\n")[2]
    shown = below.partition("\n$ ")[0].splitlines()
    vary = "numbers vary" in block.comment
    lines = iter([plain(line, vary) for line in printed.splitlines()])
    for line in shown:
        if line.strip() != "..." and line.strip():
            assert plain(line, vary) in lines, f"{block.place}: not printed: {line}\n{printed}"


def plain(line: str, vary: bool) -> str:
    line = re.sub(r"TIME( TIME)*", "TIME", TIME.sub("TIME", line))
    return " ".join((NUMBER.sub("N", line) if vary else line).split())


def test_a_block_that_nobody_runs_is_found():
    text = "<!-- slow -->\n```python\n1 / 0\n```\n\n```perl\ndie\n```\n\n    python x.py\n"
    first, second, third = of_page("page.md", text)
    assert (first.comment, is_run(first), is_quick(first)) == ({"slow": ""}, True, False)
    assert second.language not in LANGUAGES and second.comment == {}
    assert third.language == "indented" and third.line == 10
    with pytest.raises(ZeroDivisionError):
        execute(first, {})


def test_a_command_that_does_not_exist_is_noticed(monkeypatch):
    for line in (
        "python experiments/run.py --config=configs/mixit/retrieval.py:variant=frozen",
        "python experiments/run.py --config=configs/mixit/retrieval.py --config.optim.rate=1",
        "python experiments/reproduce.py --papers mixit",
        "python -m theory.advice config.json",
        "python benchmarks/none.py",
        "make tests",
        "pip install -e '.[cuda99]'",
        "frobnicate",
    ):
        with pytest.raises((Exception, SystemExit)):
            commands.check(line, monkeypatch)


def test_a_line_that_is_not_printed_is_found():
    text = "```console\n$ python x.py\nran 4 of 4 in 12 s.\n...\nbest: 0.5\n```\n"
    (block,) = of_page("page.md", text)
    compare(block, "python x.py", "hello\nran 4 of 4 in 3.5 s.\nx\nbest: 0.5\n")
    for printed in ("ran 4 of 4 in 1 s.\nbest: 0.6\n", "best: 0.5\nran 4 of 4 in 1 s.\n"):
        with pytest.raises(AssertionError, match="not printed"):
            compare(block, "python x.py", printed)
    (two,) = of_page("page.md", "```console\n$ python a.py\n$ python b.py\nb\n```\n")
    compare(two, "python a.py", "")
    with pytest.raises(AssertionError, match="not printed: b"):
        compare(two, "python b.py", "")
