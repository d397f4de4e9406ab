"""Wrong input of `jaxformer anatomy`: a one-line error each, before anything is trained."""

import re
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxformer
from experiments import anatomy
from experiments.anatomy_report import config_subjects
from jaxformer.core.errors import UserError
from jaxformer.studies.anatomy import parts, sources, subject
from jaxformer.studies.anatomy.training import is_change
from jaxformer.tasks.retrieval import Retrieval

PAGE = Path(__file__).parents[2] / "docs/anatomy.md"
TASKS = """
from jaxformer.tasks.retrieval import Retrieval
Small = Retrieval(max_pairs=4, vocab=32)
number = 3
def broken():
    raise KeyError("no data")
"""
WRONG = {
    "nothing": ([], "give one of --task"),
    "two sources": (["--task=retrieval", "--config=mixit/retrieval"], "got 2"),
    "unknown task": (["--task=retrievel"], "Did you mean 'retrieval'"),
    "no module": (["--task=nowhere.tasks:Sort"], "no module 'nowhere'"),
    "no file": (["--task=nowhere.py:Sort"], "no file 'nowhere.py'"),
    "no name": (["--task=my_tasks:Smal"], "Did you mean 'Small'"),
    "no task": (["--task=my_tasks:number"], "raises TypeError"),
    "broken": (["--task=my_tasks:broken"], "raises KeyError: 'no data'"),
    "no call": (["--task=my_tasks:Small(2)"], "--task must be package.module:Task"),
    "size": (["--task=my_tasks:Retrieval(vocab=3)"], "retrieval needs"),
    "rates": (["--task=my_tasks:Small", "--rates=1e-3,x"], "--rates must be"),
    "rate twice": (["--task=my_tasks:Small", "--rates=1e-3,1e-3"], "--rates must be"),
    "method": (["--task=my_tasks:Small", "--methods=frozn"], "Did you mean 'frozen'"),
    "margin": (["--task=my_tasks:Small", "--margin=2"], "margin must lie between"),
    "width": (["--task=my_tasks:Small", "--width=7"], "4 heads do not divide"),
    "recipe": (["--config=mixit/sde_paths"], "needs a training config"),
    "config and width": (["--config=mixit/retrieval", "--width=8"], "sets width itself"),
    "heads": (["--task=my_tasks:Small", "--no-heads"], "--no-heads is for a published model"),
    "no run": (["."], ". is no run"),
    "fine-tuning": (["--config=text/finetune:scale=tiny"], "trains a published model"),
    "no text": (["--config=text/lm:scale=small"], "tinyshakespeare-bpe1024"),
    "budget": (["--task=my_tasks:Small", "--budget=soon"], "--budget"),
    "executor": (["--task=my_tasks:Small", "--executor=slrm"], "Did you mean 'slurm'"),
    "slurm": (["--task=my_tasks:Small", "--slurm=a.toml"], "--slurm=FILE needs --executor=slurm"),
    "slurm and budget": (
        ["--task=my_tasks:Small", "--executor=slurm", "--budget=1m"],
        "--budget is the time of this machine",
    ),
    "two nodes": (
        ["--task=my_tasks:Small", "--executor=slurm", "--slurm=two_nodes.toml"],
        "a training here is one process",
    ),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "my_tasks.py").write_text(TASKS)
    (tmp_path / "two_nodes.toml").write_text("nodes = 2")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_wrong_input_ends_with_a_one_line_error(capsys, tmp_path):
    for name, (argv, message) in WRONG.items():
        assert anatomy.main(argv) == 2, name
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1, f"{name}: {error}"
    assert not (tmp_path / "runs").exists()


def test_tasks_are_read_from_modules_files_and_configs():
    assert sources.load_task("my_tasks:Small") == Retrieval(max_pairs=4, vocab=32)
    assert sources.load_task("my_tasks.py:Retrieval(vocab=32)") == Retrieval(vocab=32)
    one = sources.of_task_text("my_tasks:Small", steps=7, width=16)
    assert one.network.steps == 7 and one.mixing is not None and one.name == "Retrieval"
    same, other = (sources.of_task_text("my_tasks:Small", steps=n, width=16) for n in (7, 8))
    assert one.hash == same.hash != other.hash
    config = config_subjects.of_config_text("mixit/retrieval:scale=tiny", rates=(1e-3, 1e-2))
    assert config.rates == (1e-3, 1e-2) and config.network.steps == 400
    # A part that the config itself freezes is not frozen again.
    config = config_subjects.of_config_text("mixit/retrieval:variant=frozen_qk,scale=tiny")
    found = parts.parts_of(config.network.shapes)
    variants = parts.variants_of(found, (parts.FROZEN, parts.ONLY), can_mix=False)
    names = [one.name for one in variants if not is_change(config.network, one)]
    assert names == ["queries and keys, frozen", "queries and keys, only"]


def test_a_task_file_imports_the_users_own_configs_and_experiments(tmp_path, capsys):
    for name in ("configs", "experiments"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / "configs/base.py").write_text("VOCAB = 32")
    (tmp_path / "configs/common.py").write_text("PAIRS = 4")  # the command has one too
    (tmp_path / "experiments/mine.py").write_text(TASKS)
    (tmp_path / "mytask.py").write_text(
        "from configs import common\nfrom configs.base import VOCAB\n"
        "from experiments.mine import Retrieval\n"
        "Mine = lambda: Retrieval(max_pairs=common.PAIRS, vocab=VOCAB)\n"
    )
    for text in ("mytask.py:Mine", "mytask:Mine"):
        found = config_subjects.of_task_text(text, steps=7).task
        assert (found.max_pairs, found.vocab) == (4, 32)
    assert sys.modules["configs.common"].VARIANTS, "the command has its own packages again"
    assert anatomy.main(["--task=mytask.py:Mine", "--methods=frozn"]) == 2
    assert "Did you mean 'frozen'" in capsys.readouterr().err


def test_the_task_of_the_page_sorts(tmp_path):
    (block,) = re.findall(r"```python\n(\"\"\"Sort.*?)```", PAGE.read_text(), re.S)
    (tmp_path / "sort_task.py").write_text(block)
    task = sources.load_task("sort_task.py:Sort(numbers=4)")
    example = task.example(jax.random.key(0), jax.numpy.zeros((), int))
    given, answer = np.asarray(example.inputs[:4]), np.asarray(example.targets[4:])
    assert sorted(given) == answer.tolist() and example.weights.sum() == 4


def test_python_refuses_what_is_no_task():
    with pytest.raises(UserError, match="give Retrieval"):
        subject.of_task(Retrieval)
    with pytest.raises(UserError, match="expected a task"):
        subject.of_task(np.zeros(3))
    with pytest.raises(UserError, match=r"jaxformer anatomy --task=retrieval\.$") as error:
        jaxformer.anatomy("retrieval")
    assert "\n" not in str(error.value)
    assert "anatomy" in dir(jaxformer) and callable(jaxformer.anatomy)


def test_a_stopped_examination_says_that_the_same_command_continues(monkeypatch, capsys):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(anatomy.jaxformer, "examine", stop)
    assert anatomy.main(["known:copy"]) == 130
    assert capsys.readouterr().out == "stopped: the same command continues.\n"
