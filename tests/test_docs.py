"""docs/adding.md works when it is followed: its task and its config are taken from the page."""

import json
import re
import sys
import textwrap
import types

import pytest

from experiments.run import main
from experiments.shared import flags
from jaxformer import build

PAGE = (flags.ROOT / "docs/adding.md").read_text()
README = (flags.ROOT / "README.md").read_text()


def block(first_line):
    """The indented code of the page that starts with this comment."""
    blocks = re.findall(r"(?:^    .*\n|^\n)+", PAGE, re.MULTILINE)
    codes = [textwrap.dedent(text).strip("\n") for text in blocks]
    return next(code for code in codes if code.startswith(first_line)).split("\n", 1)[1]


def test_the_walk_for_a_task_and_a_config_ends_with_a_run(tmp_path, monkeypatch):
    retrieval = sys.modules["jaxformer.tasks.retrieval"]
    module = types.ModuleType("first")
    monkeypatch.setitem(sys.modules, "first", module)
    vars(module).update({n: v for n, v in vars(retrieval).items() if not n.startswith("__")})
    exec(block("# jaxformer/tasks/first.py"), vars(module))
    monkeypatch.setitem(build.TASKS, "first", module.First)
    config = tmp_path / "first.py"
    config.write_text(block("# configs/mixit/first.py"))

    words = ("--config.model.width=16", "--config.train.steps=60", "--config.train.eval_every=30")
    workdir = tmp_path / "run"
    run = f"--config={config}:variant=standard,scale=tiny"
    assert main([run, *words, f"--workdir={workdir}"]) == 0
    result = json.loads((workdir / "result.json").read_text())
    assert result["baselines"] == {"uniform": 1 / 16}
    assert result["metrics"]["accuracy"]["mean"] > 0.3


@pytest.mark.parametrize("file", sorted(set(re.findall(r"configs/\w+/\w+\.py", README + PAGE))))
def test_the_pages_name_configs_that_exist(file):
    assert (flags.ROOT / file).exists() or file == "configs/mixit/first.py"


def test_the_pages_link_to_files_that_exist():
    links = re.findall(r"\]\(([\w/.]+)\)", README) + re.findall(r"`(docs/\w+\.md)`", README)
    assert links
    for link in links:
        assert (flags.ROOT / link).exists(), link
