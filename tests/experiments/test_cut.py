"""cut.py: both distributions, the cut model on disk, and a search that goes on where it stopped."""

import json

import jax
import numpy as np
import pytest

import jaxformer
from experiments.cut import main
from experiments.shared import cutting, prompts
from jaxformer import paths, surgery
from jaxformer.models.pretrained import text, tiny

PROMPT = "Madrid is located in"
LINES = f"{PROMPT}\tSpain\nParis is located in the southern one\tFrance\nRome is\tSouthampton\n"
SEARCH = ("--search", "--fraction=0.1,1", "--against=the")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.save("gpt2", tmp_path_factory.mktemp("model") / "gpt2", tiny.TEXTS)


def fails(capsys, *words):
    assert main([*map(str, words)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
    return error


def test_both_distributions_and_the_cut_model(folder, tmp_path, capsys):
    words = ["--matrix=block_1/mlp/in", "--fraction=0.1", f"--prompt={PROMPT}", "--target=Spain"]
    assert main([str(folder), *words, f"--save={tmp_path}"]) == 0
    printed = capsys.readouterr().out
    assert "block_1/mlp/in/kernel: 16 x 64, rank 1 kept" in printed
    model, params, _ = jaxformer.load(folder)
    cut = jaxformer.load(tmp_path)[1]
    expected = surgery.laser(params, "block_1/mlp/in", 0.1)
    for path, leaf in paths.flatten(expected).items():
        np.testing.assert_array_equal(paths.flatten(cut)[path], leaf)
    kernel = cut["block_1"]["mlp"]["in"]["kernel"]
    assert np.linalg.matrix_rank(kernel, tol=1e-4) == 1
    # The printed numbers, by hand.
    read = text.Text(folder, model.spec.vocab_size)
    tokens = np.array([read.encode(PROMPT)])
    (row,) = [line for line in printed.splitlines() if line.startswith("' Spain'")]
    for weights, shown in ((params, row.split()[2]), (cut, row.split()[4])):
        p = jax.nn.softmax(model.apply({"params": weights}, tokens)[0, -1])
        assert float(shown) == pytest.approx(float(p[read.pieces(" Spain")[0]]), abs=1e-4)
    assert (tmp_path / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()


def test_a_search_is_laser_again_and_again_and_resumes(folder, tmp_path, capsys, monkeypatch):
    (tmp_path / "p.txt").write_text(LINES)
    model, params, _ = jaxformer.load(folder)
    words = [str(folder), *SEARCH, f"--prompts={tmp_path / 'p.txt'}", f"--out={tmp_path / 'out'}"]
    prompts._program.cache_clear()
    decompose, seen = surgery.decompose, []

    def counted(matrix):
        if len(seen) == 2:
            raise KeyboardInterrupt
        seen.append(matrix.shape)
        return decompose(matrix)

    monkeypatch.setattr(surgery, "decompose", counted)
    assert main(words) == 130
    file = tmp_path / "out" / "rows.jsonl"
    assert len(file.read_text().splitlines()) == 1 + 2 * 2
    file.write_text(file.read_text()[:-9])  # a line that was cut off
    monkeypatch.setattr(surgery, "decompose", decompose)
    assert main(words) == 0
    assert "'Southampton' is" in capsys.readouterr().out  # several tokens: it is said
    assert prompts.compiled(model) == 1
    rows = cutting.Rows.read(type("At", (), {"file": file}))
    assert len(rows) == 1 + 4 * 2 and [*rows[0]][:3] == ["matrix", "fraction", "rank"]
    pairs = [line.split("\t") for line in LINES.splitlines()]
    batch = prompts.batch(text.Text(folder, model.spec.vocab_size), *zip(*pairs))
    for row in rows[1:]:
        cut = surgery.laser(params, row["matrix"], row["fraction"])
        logs = prompts.next_log_probabilities(model, cut, batch)
        own = logs[np.arange(3), batch.targets_B]
        assert row["p_target"] == pytest.approx(np.exp(own).mean(), rel=1e-3)
        assert row["rank"] == (1 if row["fraction"] == 0.1 else 16)
    full = [row["p_target"] for row in rows if row["fraction"] == 1]
    np.testing.assert_allclose(full, rows[0]["p_target"], rtol=1e-4)
    assert "holds another search" in fails(capsys, *words, "--dtype=bfloat16")


def test_padding_does_not_show(folder):
    """A prompt in a batch says what it says alone."""
    model, params, _ = jaxformer.load(folder)
    read = text.Text(folder, model.spec.vocab_size)
    both = prompts.batch(read, [PROMPT, f"{PROMPT} the southern one of Italy"])
    alone = prompts.batch(read, [PROMPT])
    first = prompts.next_log_probabilities(model, params, both)[0]
    np.testing.assert_allclose(
        first, prompts.next_log_probabilities(model, params, alone)[0], atol=1e-5
    )


def test_our_own_runs_can_be_cut(finished, capsys):
    """Their prompts are token ids."""
    words = ["--matrix=block_1/mlp/in", "--fraction=0.5", "--prompt=5 9 5", "--target=9"]
    assert main([str(finished), *words]) == 0
    assert "block_1/mlp/in/kernel: 16 x 64, rank 8 kept" in capsys.readouterr().out
    words[2] = "--prompt=five nine"
    assert "a prompt is token ids such as '5 17 2'" in fails(capsys, finished, *words)


@pytest.mark.parametrize(
    "words, message",
    [
        (["--fraction=0"], "--fraction must be in (0, 1], got '0'"),
        (["--fraction=1.2"], "--fraction must be in (0, 1], got '1.2'"),
        (["--fraction=x"], "--fraction must be in (0, 1], got 'x'"),
        ([], "give --matrix, one --fraction and --prompt, or --search"),
        (["--matrix=block_9/mlp", "--fraction=.1", "--prompt=the"], "matches no path"),
        (["--matrix=block_1/mlp/in", "--fraction=.1", "--prompt="], "give --matrix"),
        (["--search"], "--search needs --prompts=FILE and --out=FOLDER"),
    ],
)
def test_bad_words(folder, capsys, words, message):
    assert message in fails(capsys, folder, *words)


def test_bad_files(folder, tmp_path, capsys):
    lines = tmp_path / "p.txt"
    lines.write_text("no target\n")
    words = ["--search", f"--prompts={lines}", f"--out={tmp_path / 'out'}"]
    assert "line 1: expected prompt, tab, target" in fails(capsys, folder, *words)
    small = tiny.save("gpt2", tmp_path / "small", vocab=24)
    (small / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    words = ["--matrix=block_1/mlp/in", "--fraction=.1", "--prompt=the"]
    assert "does not match the model" in fails(capsys, small, *words)
    (small / "tokenizer.json").write_text(json.dumps({"a": 1}))
    assert "is no tokenizer" in fails(capsys, small, *words)
