"""The command `jaxformer`: its programs, short config names and tab completion."""

import os
import resource
import runpy
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

from experiments.cli import completion, console
from experiments.cli.flags import ROOT


def test_every_program_exists_and_has_a_line_in_the_help(capsys):
    assert console.main([]) == 0
    text = capsys.readouterr().out
    for name, program in console.PROGRAMS.items():
        assert f"  {name} " in text
        assert completion.flags(program.module), f"{name} has no flags"


def test_the_help_imports_no_jax():
    """The help is printed before slow imports."""
    code = "import sys; from jaxformer.__main__ import main; main(['--help'])\n"
    code += "sys.exit('jax' in sys.modules or 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True)
    assert done.returncode == 0


def test_the_help_of_every_program_is_read_from_a_file(monkeypatch, capsys):
    """A program is imported only for other arguments than --help."""
    monkeypatch.setattr(console.importlib, "import_module", lambda name: pytest.fail(name))
    for name in console.PROGRAMS:
        assert console.main([name, "--help"]) == 0
        assert len(capsys.readouterr().out) > 100, name


def import_again():
    """Run the first file of the library, as an import in a new process does."""
    file = ROOT / "jaxformer/__init__.py"
    runpy.run_path(str(file), run_name="jaxformer")


def test_importing_on_windows_is_a_one_line_error(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(ImportError, match="runs on Linux and macOS"):
        import_again()


@pytest.mark.parametrize(
    ("limit", "warns"), [(1_300_000_000, True), (4 * 10**9, False), (-1, False)]
)
def test_too_little_address_space_is_one_warning(monkeypatch, recwarn, limit, warns):
    """JAX with less memory ends with std::bad_alloc, which Python cannot catch."""
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limit, limit))
    import_again()
    messages = [str(warning.message) for warning in recwarn]
    assert [m.split(".")[0] for m in messages] == ["ulimit -v allows 1"] * warns, messages


def test_the_first_word_is_a_config_or_a_task(monkeypatch):
    calls = []
    program = SimpleNamespace(main=lambda words: calls.append(words) or 0)
    monkeypatch.setattr(console.importlib, "import_module", lambda name: program)
    assert console.main(["run", "mixit/retrieval:scale=tiny", "--dry-run"]) == 0
    assert console.main(["run", "mine.py", "--dry-run"]) == 0
    assert console.main(["litmus", "retrieval"]) == 0
    assert console.main(["look", "runs/x"]) == 0
    assert calls == [
        ["--config=configs/mixit/retrieval.py:scale=tiny", "--dry-run"],
        ["--config=mine.py", "--dry-run"],
        ["--task=retrieval"],
        ["runs/x"],
    ]


@pytest.mark.parametrize("arguments", [["swep"], ["completion", "tcsh"]])
def test_a_wrong_word_is_a_one_line_error_with_the_choices(arguments, capsys):
    assert console.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1


@pytest.mark.parametrize(
    "line, expected",
    [
        ("jaxformer litm", ["litmus"]),
        ("jaxformer run mixit/retr", ["mixit/retrieval"]),
        ("jaxformer run --config=mixit/retr", ["--config=mixit/retrieval"]),
        (
            "jaxformer run mixit/retrieval:variant=frozen",
            [f"mixit/retrieval:variant={v}" for v in ("frozen_qk", "frozen_mlp")],
        ),
        (
            "jaxformer run mixit/retrieval:variant=mixit,sc",
            ["mixit/retrieval:variant=mixit,scale="],
        ),
        ("jaxformer run mixit/retrieval --config.optim.learn", ["--config.optim.learning_rate="]),
        ("jaxformer run --dry", ["--dry-run"]),
        ("jaxformer look runs/", []),
        ("jaxformer nothing --x", []),
    ],
)
def test_completions(line, expected):
    assert completion.complete(line, console.PROGRAMS) == expected


@pytest.mark.parametrize("name", ["./evil.py", "configs/mixit/retrieval.py", "configs/evil.py"])
def test_a_key_press_imports_no_file_outside_the_configs(name, tmp_path, monkeypatch):
    """A config is code. The user runs it by Return, not by TAB, and not from another folder."""
    monkeypatch.chdir(tmp_path)
    evil = tmp_path / name
    evil.parent.mkdir(parents=True, exist_ok=True)
    evil.write_text("from pathlib import Path\nPath('imported').touch()\n")
    for line in (
        f"jaxformer run {name}:",
        f"jaxformer run --config={evil}:",
        f"jaxformer anatomy --task {name} --config.",
    ):
        completion.complete(line, console.PROGRAMS)
        assert not (tmp_path / "imported").exists(), line


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_the_part_after_the_last_colon(tmp_path):
    (tmp_path / "jaxformer").write_text(
        f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m jaxformer "$@"\n'
    )
    (tmp_path / "jaxformer").chmod(0o755)
    line = "jaxformer run mixit/retrieval:variant=mix"
    script = f"""{completion.script("bash")}
        compopt() {{ :; }}
        COMP_LINE='{line}' COMP_POINT={len(line)}; _jaxformer; echo "${{COMPREPLY[@]}}" """
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "mixit", done.stderr


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish")
def test_fish_completes_a_config(tmp_path):
    (tmp_path / "jaxformer").write_text(
        f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m jaxformer "$@"\n'
    )
    (tmp_path / "jaxformer").chmod(0o755)
    script = f"{completion.script('fish')}\ncomplete -C 'jaxformer run mixit/retr'"
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["fish", "-c", script], env=environment, capture_output=True, text=True)
    assert "mixit/retrieval" in done.stdout, done.stderr


def test_configs_are_listed_by_a_word(capsys):
    assert console.main(["configs", "mixit", "Retrieval"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("mixit/retrieval ") for line in lines)
    assert all("mixit" in line and "retriev" in line.lower() for line in lines)
    assert console.main(["configs", "mixit/retreival"]) == 2
    error = capsys.readouterr().err
    assert error == "error: no config with 'mixit/retreival'. Did you mean 'mixit/retrieval'?\n"
