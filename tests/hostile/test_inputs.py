"""Bad input for every flag of every command and every field of every config, found from them.

A new flag or field is attacked without being listed: add a value to VALUES to attack them all.
HOSTILE_SEED=N draws others, HOSTILE_INPUTS=N more of them. Every input is taken by a forked child
and ends within its time with exit code 0, or with 2 and one line.
"""

import importlib
import os
import random
import re
import sys
import time
import warnings
from pathlib import Path

import pytest

from experiments.schedule import launch
from experiments.shared import flags
from jaxformer.commandline import Parser
from jaxformer.records import flat

pytestmark = [pytest.mark.hostile, pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")]
SEED = int(os.environ.get("HOSTILE_SEED", 0))
INPUTS = int(os.environ.get("HOSTILE_INPUTS", 600))
SECONDS = 60.0  # of one input, on a busy machine; an endless one has no chance either way
COMMANDS = (
    *(f"experiments.{name}" for name in ("run", "sweep", "reproduce", "litmus", "report", "demo")),
    *(f"experiments.{name}" for name in ("look", "compare")),
    *(f"theory.{name}" for name in ("phase_map", "trainability", "advise")),
)
VALUES = (
    "", " ", "0", "-1", "1", "2", "1e26", "1e300", "-1e300", "1e999", "nan", "inf", "-inf",
    "9" * 30, "9" * 5000, "0x10", "1_0", "²", "½", "true", "None", "()", "[]", "{}", "(1,", "((",
    "(1,2,3)", "('a','b')", "((10,5),)", "((5,(('.*','train'),)),)", "(('.*','frozen'),)",
    "(('(a+)+b','train'),)", "'", "a,b", "1e-3,1e-3", "0.001,1e-3", "ä☃", "\x1b[2J", "\udcff",
    "a\nb", "../../../etc/passwd", "/", "/dev/null", "/dev/zero", "/nowhere/x.png", "README.md",
    "x" * 5000, "[" * 3000, "configs", "configs/common.py", "configs/mixit/retrieval.py:scale=",
    "configs/mixit/retrieval.py:scale=tiny,scale=small", "--help", "float64", "fan_in",
)  # fmt: skip
# What makes a command look at the flag at all, and do nothing long if it takes it.
AROUND = {
    "experiments.run": ["--config=configs/mixit/retrieval.py:scale=tiny", "--dry-run"],
    "experiments.sweep": ["--file=configs/sweeps/tiny.toml", "--dry-run"],
    "experiments.reproduce": ["--paper=mixit", "--dry-run"],
    "experiments.report": ["--check"],
}


class Seen(Exception):
    """The parser of a command is whole."""


def flags_of(command: str, monkeypatch) -> list[str]:
    """The flags of a command, from its own parser."""
    found: list[str] = []

    def look(parser, *_):
        found.extend(a.option_strings[0] for a in parser._actions if a.option_strings)
        raise Seen

    with monkeypatch.context() as patch:
        patch.setattr(Parser, "parse_args", look)
        with pytest.raises(Seen):
            importlib.import_module(command).main([])
    return [flag for flag in found if flag != "--help"]


def inputs(monkeypatch) -> list[tuple[str, list[str]]]:
    """(command, its words): every flag and every field with every value, a drawn part of them."""
    every = []
    for command in COMMANDS:
        for flag in flags_of(command, monkeypatch):
            around = [word for word in AROUND.get(command, []) if not word.startswith(flag)]
            every += [(command, [*around, f"{flag}={value}"]) for value in VALUES]
    for file in flags.known_configs():
        config = f"--config={file}:scale=tiny"
        for field in flat(flags.load_config(f"{file}:scale=tiny").to_dict()):
            words = [config, "--dry-run"]
            every += [
                ("experiments.run", [*words, f"--config.{field}={value}"]) for value in VALUES
            ]
    return random.Random(SEED).sample(every, min(INPUTS, len(every)))


def test_every_bad_input_is_one_line(tmp_path, monkeypatch):
    chosen, wrong = inputs(monkeypatch), []
    print(f"HOSTILE_SEED={SEED}: {len(chosen)} inputs")
    monkeypatch.chdir(tmp_path)
    # What a command would start is not what is tested here.
    no_run = (sys.executable, "-c", "raise SystemExit('error: no run is started by this test')")
    monkeypatch.setattr(launch, "PROGRAM", no_run)
    for command in COMMANDS:
        importlib.import_module(command)
    for i, (command, words) in enumerate(chosen):
        code, said = ended(command, words, tmp_path / f"{i}.txt")
        lines = said.strip().splitlines()
        errors = [line for line in lines if line.startswith("error: ")]
        is_refused = code == 2 and len(errors) == 1
        # 1: report --check on pages that differ.
        if "Traceback" in said or not (is_refused or code in (0, 1)):
            wrong.append(f"{command} {words!r:.200}: code {code}, {said[-300:]!r}")
    kept = Path(flags.ROOT / "README.md")
    assert kept.stat().st_size > 1000, "a command wrote over a file of ours"
    assert not wrong, f"{len(wrong)} of {len(chosen)}, HOSTILE_SEED={SEED}:\n" + "\n".join(wrong)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_attack_knows_every_flag_of_a_manual(command, monkeypatch):
    """What a docstring promises is attacked, so that no flag hides from the parser."""
    module = importlib.import_module(command)
    promised = set(re.findall(r"^  (--[a-z][a-z-]*)", module.__doc__ or "", re.MULTILINE))
    assert promised - {"--help", "--config"} <= {*flags_of(command, monkeypatch)}


def ended(command: str, words: list[str], file: Path) -> tuple[int, str]:
    """The exit code of a forked child, and what it said; -9 if its time was up."""
    pid = os.fork()
    if not pid:
        code = 70
        try:
            out = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
            os.dup2(out, 1)
            os.dup2(out, 2)
            sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
            sys.stderr = open(2, "w", closefd=False, errors="backslashreplace")  # noqa: SIM115
            warnings.simplefilter("default")  # as in a command, not as in a test
            module = importlib.import_module(command)
            if command.startswith("theory"):
                module.run(module.main, words)
                code = 0
            else:
                code = module.main(words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), file.read_text(errors="replace")
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return -9, f"no end in {SECONDS:g} s; {file.read_text(errors='replace')[-200:]}"
