"""Runs of the real command, small enough for the suite."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.run import main
from tests.helpers import shared_folder

ROOT = Path(__file__).parents[2]
# The smallest model that still has every part; one program for all tests that can share it.
TINY = (
    "--config=configs/mixit/retrieval.py:variant=frozen_qk,scale=tiny",
    "--config.model.width=16",
    "--config.model.mlp_width=64",
    "--config.task.max_pairs=3",
    "--config.task.vocab=16",
    "--config.data.test_size=40",
    "--config.data.validation_size=40",
    "--config.train.batch_size=8",
    "--config.train.steps=60",
    "--config.train.eval_every=20",
)

# The smallest posterior that still has a warm-up and several chunks of draws.
POSTERIOR = (
    "--config=configs/attention_paths/posterior.py:scale=tiny",
    "--config.task.examples=12",
    "--config.task.test_examples=40",
    "--config.posterior.draws=60",
    "--config.posterior.warmup=30",
    "--config.posterior.chunk=20",
)
# Sends itself a signal after a method of the session was called at a given step.
INTERRUPTED = """
import os, sys
from experiments import run
from jaxformer.training.session import Session
call, sent = Session.{method}, []
def and_then_signal(self, *args):
    out = call(self, *args)
    if args[{step_argument}] >= {step} and not sent:
        sent.append(1)
        os.kill(os.getpid(), {signal})
    return out
Session.{method} = and_then_signal
sys.exit(run.main({arguments!r}))
"""
AFTER_ROWS = dict(method="record", step_argument=0)
WHILE_SAVING = dict(method="save", step_argument=1)


def tiny(*arguments: str) -> list[str]:
    """Returns the arguments of TINY, replaced by the given ones where both have a flag."""
    return instead(TINY, *arguments)


def instead(base, *arguments: str) -> list[str]:
    """Returns the arguments of a command with some of them replaced."""
    flags = {argument.partition("=")[0] for argument in arguments}
    return [*(a for a in base if a.partition("=")[0] not in flags), *arguments]


def wrong_errors(main, cases, capsys) -> list[str]:
    """Returns the cases that do not end with exit code 2 and one line with the message.

    Args:
        main: the main function of a command.
        cases: pairs (arguments, a part of the error).
        capsys: the fixture of pytest.
    """
    failures = []
    for arguments, message in cases:
        code, error = main([*arguments]), capsys.readouterr().err
        is_one_line = error.startswith("error: ") and error.count("\n") == 1
        if code != 2 or not is_one_line or not error.endswith("\n") or message not in error:
            failures.append(f"{arguments}: expected {message!r}, got {code} {error!r}")
    return failures


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """Returns the folder of a finished tiny run, which tests must not change."""

    def run(folder):
        assert main([*TINY, f"--workdir={folder / 'run'}"]) == 0

    return shared_folder(tmp_path_factory, "finished", run) / "run"


@pytest.fixture(scope="session")
def in_process():
    """Returns in_process(code), which runs Python code in a new process."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}

    def run(code):
        return subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True
        )

    return run


@pytest.fixture(scope="session")
def interrupted(in_process):
    """Returns interrupted(arguments, moment, step, number), which sends a signal to run.py."""

    def run(arguments, moment, step, number):
        options = {"step": step, "signal": int(number), "arguments": arguments}
        return in_process(INTERRUPTED.format(**moment, **options))

    return run
