"""Bad input for every flag of every command and every field of every config.

Commands, flags and fields are listed by the code, so that new ones are attacked too. VALUES are the
inputs. AROUND has the other arguments of a command, without which it ignores the attacked flag.
HOSTILE_SEED=N draws other inputs, HOSTILE_INPUTS=N more of them. Each input is read by a child of
tests/hostile/input_server.py. It must end in time with exit code 0, or with 2 and one line.
`is_sensible` judges which values a field may take, independently of the checks of the code.
"""

import ast
import contextlib
import importlib
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from experiments.cli import console, flags
from jaxformer.io.run_folder import flatten_config
from jaxformer.models.pretrained import tiny
from jaxformer.runtime.command_line import Parser

pytestmark = [pytest.mark.hostile, pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")]
SEED = int(os.environ.get("HOSTILE_SEED", 0))
INPUTS = int(os.environ.get("HOSTILE_INPUTS", 600))
ONLY = os.environ.get("HOSTILE_COMMANDS", "")  # a pattern: those commands alone, and no field


def commands() -> list[str]:
    """Every module that `python -m` runs and that has a parser, or a package that is run."""
    found = []
    for package in ("experiments", "theory", "jaxformer"):
        for file in sorted((flags.ROOT / package).rglob("*.py")):
            text, name = file.read_text(), file.relative_to(flags.ROOT).with_suffix("")
            siblings = file.parent.glob("*.py") if file.stem == "__main__" else [file]
            has_parser = any("Parser(" in sibling.read_text() for sibling in siblings)
            if '__name__ == "__main__"' in text and has_parser:
                found.append(".".join(name.parts).removesuffix(".__main__"))
    return [name for name in found if re.search(ONLY, name)]


COMMANDS = commands()
CONSOLE = "experiments.cli.console"  # `jaxformer`, which has names of programs and no parser
LARGEST = {int: 1e15, float: 1e30}
VALUES = (
    "", " ", "0", "-1", "1", "2", "1e26", "1e300", "-1e300", "1e999", "nan", "inf", "-inf",
    "9" * 30, "9" * 5000, "0x10", "1_0", "²", "½", "true", "None", "()", "[]", "{}", "(1,", "((",
    "(1,2,3)", "('a','b')", "((10,5),)", "((5,(('.*','train'),)),)", "(('.*','frozen'),)",
    "(('(a+)+b','train'),)", "'", "a,b", "1e-3,1e-3", "0.001,1e-3", "ä☃", "\x1b[2J", "\udcff",
    "a\nb", "../../../etc/passwd", "/", "/dev/null", "/dev/zero", "/nowhere/x.png", "README.md",
    "x" * 5000, "[" * 3000, "configs", "configs/common.py", "configs/mixit/retrieval.py:scale=",
    "configs/mixit/retrieval.py:scale=tiny,scale=small", "--help", "float64", "fan_in",
)  # fmt: skip
# What makes a command look at the flag at all, and do nothing long if it takes it; one or several
# forms. "gpt2" is a random tiny model and "p.txt" a prompt with its target.
CUT = ["gpt2", "--matrix=block_1/mlp/in", "--fraction=0.1"]
AROUND: dict[str, tuple[list[str], ...]] = {
    "experiments.run": (["--config=configs/mixit/retrieval.py:scale=tiny", "--dry-run"],),
    "experiments.sweep": (["--file=configs/sweeps/tiny.toml", "--dry-run"],),
    "experiments.reproduce": (["--paper=mixit", "--dry-run"],),
    "experiments.report": (["--check"],),
    "experiments.generate": (["gpt2", "--prompt=Madrid is located in", "--tokens=2"],),
    "experiments.prepare": (
        ["--dataset=text:p.txt", "--tokenizer=bytes", "--out=tokens"],
        ["--check=tokens"],
    ),
    "experiments.confirm": (["plan", "--plan=PLAN.json", "--only=none"], ["judge"]),
    "experiments.cut": (
        [*CUT, "--prompt=Madrid is located in"],
        [*CUT, "--search", "--prompts=p.txt", "--out=rows"],
    ),
    "jaxformer.models.pretrained.tiny": (["gpt2", "made"],),
}


# Fields whose value is the user's own words, and the words that mean something to some field.
FREE = (
    *("name", "task.text", "figure.text", "data.paths", "data.ood"),
    *("task.triggers", "task.noise", "figure.source", "figure.revision"),
)
WORDS = ("float64", "fan_in", ".*", "train", "")
# Words that stand for a number, which may be given instead.
NUMBERS_TOO = ("fan_in", "head", "spread", "token")


class Seen(Exception):
    """The parser of a command is whole."""


def flags_of(command: str, monkeypatch) -> list[str]:
    """The flags of a command, from its own parser; "" stands for its words without a flag."""
    found: list[str] = []

    def look(parser, *_):
        found.extend(dict.fromkeys("".join(a.option_strings[:1]) for a in parser.flags))
        raise Seen

    with monkeypatch.context() as patch:
        patch.setattr(Parser, "parse_args", look)
        with pytest.raises(Seen):
            importlib.import_module(command).main([])
    return [flag for flag in found if flag != "--help"]


class Input(NamedTuple):
    command: str
    words: list[str]
    field: str = ""  # of a config
    old: Any = None  # its value, which says what it may become
    value: str = ""


def inputs(monkeypatch) -> list[Input]:
    """Every flag, word and field with every value, a drawn part of them."""
    every = []
    for command in COMMANDS:
        for flag in flags_of(command, monkeypatch):
            for around in AROUND.get(command, ([],)):
                forms = with_flag(around, flag) if flag else with_word(around)
                every += [Input(command, words) for words in forms]
    if re.search(ONLY, CONSOLE):
        every += [Input(CONSOLE, words) for words in console_words()]
    for file in () if ONLY else flags.config_files():
        config = f"--config={file}:scale=tiny"
        for field, old in flatten_config(flags.load_config(f"{file}:scale=tiny").to_dict()).items():
            words = [config, "--dry-run"]
            every += [
                Input("experiments.run", [*words, f"--config.{field}={v}"], field, old, v)
                for v in VALUES
            ]
    return random.Random(SEED).sample(every, min(INPUTS, len(every)))


def console_words() -> list[list[str]]:
    """Returns each value as the name of a program, and as the first word of each program."""
    names = [[name] for name in (*console.PROGRAMS, "completion", "complete", "configs")]
    ends = {name: ["--dry-run"] for name in ("run", "train", "sweep", "reproduce")}
    return [
        [*name, value, *ends.get("".join(name), [])] for name in ([], *names) for value in VALUES
    ]


def with_flag(around: list[str], flag: str) -> list[list[str]]:
    others = [word for word in around if word.partition("=")[0] != flag]
    return [[*others, f"{flag}={value}"] for value in VALUES]


def with_word(around: list[str]) -> list[list[str]]:
    """Each of the words that are no flag replaced, or one given where there is none."""
    bare = [word for word in around if not word.startswith("-")] or [""]
    named = [word for word in around if word.startswith("-")]
    return [
        [*bare[:place], value, *bare[place + 1 :], *named]
        for place in range(len(bare))
        for value in VALUES
    ]


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """Returns (command, words, room) -> (code, output), by a process that imported them all."""
    folder = tmp_path_factory.mktemp("inputs")
    tiny.save("gpt2", folder / "gpt2", tiny.TEXTS)
    (folder / "p.txt").write_text("Madrid is located in\tSpain\n")
    words = [sys.executable, "-m", "tests.hostile.input_server", *COMMANDS, CONSOLE]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    environment = os.environ | {"PYTHONPATH": str(flags.ROOT), "HF_HUB_OFFLINE": "1"}
    with subprocess.Popen(words, cwd=folder, env=environment, **pipes) as server:

        def answer(command: str, words: list[str], room: int = 0) -> tuple[int, str]:
            request = json.dumps([command, words, str(folder / "output.txt"), room])
            server.stdin.write(f"{request}\n")  # type: ignore[union-attr]
            server.stdin.flush()  # type: ignore[union-attr]
            code = int(server.stdout.readline())  # type: ignore[union-attr]
            return code, (folder / "output.txt").read_text(errors="replace")

        yield answer
        server.stdin.close()  # type: ignore[union-attr]


def test_every_bad_input_is_a_one_line_error(ask, monkeypatch):
    chosen, wrong = inputs(monkeypatch), []
    print(f"HOSTILE_SEED={SEED}: {len(chosen)} inputs")
    for command, words, field, old, value in chosen:
        code, output = ask(command, words)
        lines = output.strip().splitlines()
        errors = [line for line in lines if line.startswith("error: ")]
        is_refused = code == 2 and len(errors) == 1
        # 1: report --check on pages that differ.
        if "Traceback" in output or not (is_refused or code in (0, 1)):
            wrong.append(f"{command} {words!r:.200}: code {code}, {output[-300:]!r}")
        elif field and code == 0 and field not in FREE and not is_sensible(old, value):
            wrong.append(f"{command} {words!r:.200}: nonsense is accepted")
    kept = Path(flags.ROOT / "README.md")
    assert kept.stat().st_size > 1000, "a command wrote over a file of ours"
    assert not wrong, f"{len(wrong)} of {len(chosen)}, HOSTILE_SEED={SEED}:\n" + "\n".join(wrong)


def is_sensible(old: Any, text: str) -> bool:
    """May a field that is `old` become this? Nothing of ours is negative, infinite or markup."""
    if isinstance(old, bool):
        return text.lower() in ("true", "false")
    if isinstance(old, str):
        return text in WORDS or (old in NUMBERS_TOO and _is_number(text, float))
    if isinstance(old, tuple):
        with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            value = ast.literal_eval(text)
            entries = tuple(value) if isinstance(value, tuple | list) else (value,)
            words = (entry if isinstance(entry, str) else repr(entry) for entry in entries)
            likes = entries if old in ((), entries) else [old[0]] * len(entries)
            return all(map(is_sensible, likes, words))
        return False
    return _is_number(text, type(old))


def _is_number(text: str, kind: type) -> bool:
    """Not negative, and of a size that somebody means."""
    try:
        value = ast.literal_eval(text)
        return (
            isinstance(value, int | float) and 0 <= value < LARGEST[kind] and kind(value) == value
        )
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False


@pytest.mark.parametrize(
    ("old", "good", "bad"),
    [
        (3, ("0", "1e2", "0x10"), ("-1", "1.5", "nan", "true", "", "x")),
        (0.5, ("1", "1e-3"), ("-1", "inf", "1e300", "None")),
        ((1, 2), ("(1,2,3)", "()"), ("(1,", "-1", "('a','b')")),
        ((), ("((5,(('.*','train'),)),)",), ("((-5,(('.*','train'),)),)", "('/',)")),
        (True, ("true",), ("1", "None")),
        ("silu", ("float64",), ("nan", "[]", "../../../etc/passwd")),
    ],
)
def test_the_judge_of_accepted_input(old, good, bad):
    assert all(is_sensible(old, text) for text in good)
    assert not any(is_sensible(old, text) for text in bad)


def test_the_commands_are_found():
    """Whoever adds one need not list it."""
    if not ONLY:
        assert {"experiments.cut", "experiments.run", "theory.advise"} < {*COMMANDS}
        assert {*AROUND} < {*COMMANDS} and "experiments.schedule.child" not in COMMANDS
        assert {program.module for program in console.PROGRAMS.values()} <= {*COMMANDS}
    assert with_word(["a", "--x=1", "b"])[:: len(VALUES)] == [
        ["", "b", "--x=1"],
        ["a", "", "--x=1"],
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_attack_knows_every_flag_of_a_manual(command, monkeypatch):
    """Every flag of a docstring is attacked, so that the parser hides none."""
    module = importlib.import_module(command)
    promised = set(re.findall(r"^  (--[a-z][a-z-]*)", module.__doc__ or "", re.MULTILINE))
    assert promised - {"--help", "--config"} <= {*flags_of(command, monkeypatch)}
