"""From a text to samples and an exported folder: prepare, run, generate and export."""

import json

import numpy as np
import pytest

from experiments.export import main as export
from experiments.generate import main as generate
from experiments.prepare import main as prepare
from experiments.run import main as run

SMALL = (
    "--config=configs/text/lm.py:variant=frozen_qk,scale=tiny",
    "--config.model.width=16",
    "--config.model.mlp_width=16",
    "--config.model.layers=1",
    "--config.task.window=16",
    "--config.data.test_size=8",
    "--config.data.validation_size=8",
    "--config.train.batch_size=4",
    "--config.train.steps=20",
    "--config.train.eval_every=10",
    "--config.optim.warmup=5",
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Returns the folder of a tiny model that was trained on a user's text."""
    place = tmp_path_factory.mktemp("text")
    (place / "t.txt").write_text("".join(f"line {i} of a text\n" for i in range(2000)))
    tokens, workdir = place / "tokens", place / "run"
    assert (
        prepare([f"--dataset=text:{place / 't.txt'}", f"--out={tokens}", "--tokenizer=bytes"]) == 0
    )
    assert run([*SMALL, f"--config.task.tokens={tokens}", f"--workdir={workdir}"]) == 0
    return workdir


def test_a_run_says_bits_a_byte_and_how_fast_it_was(trained):
    result = json.loads((trained / "result.json").read_text())
    loss, bits = (result["metrics"][name]["mean"] for name in ("loss", "bits_per_byte"))
    assert bits == pytest.approx(loss / np.log(2), rel=0.02)  # a token is a byte, but for ends
    assert result["baselines"]["trigram_loss"] < result["baselines"]["unigram_loss"]
    rows = [json.loads(line) for line in (trained / "timing.jsonl").read_text().splitlines()]
    speed = rows[-1]["throughput"]
    assert result["timing"].keys() == speed.keys() and result["timing"]["tokens_per_second"] > 0
    assert 0 <= speed["waiting_share"] <= 1 and speed["flops_per_second"] > 0
    per_step = speed["model_flops"] * speed["samples_per_second"] / 4
    assert speed["flops_per_second"] == pytest.approx(per_step)
    assert speed["tokens_per_second"] == pytest.approx(16 * speed["samples_per_second"])


def test_equal_runs_have_equal_records(trained, tmp_path):
    again = [f"--config.task.tokens={trained.parent / 'tokens'}", f"--workdir={tmp_path / 'again'}"]
    assert run([*SMALL, *again]) == 0
    rows = [(folder / "metrics.jsonl").read_bytes() for folder in (trained, tmp_path / "again")]
    assert rows[0] == rows[1]
    results = [
        json.loads((folder / "result.json").read_text()) for folder in (trained, tmp_path / "again")
    ]
    for result in results:
        for name in ("seconds", "environment", "performance", "timing", "sha256"):
            result.pop(name, None)
    assert results[0] == results[1]


def test_text_is_drawn_from_it(trained, capsys):
    arguments = [str(trained), "--prompt=line", "--tokens=8", "--samples=2", "--seed=3"]
    assert generate(arguments) == 0
    output = capsys.readouterr().out
    assert output.count("line") >= 2 and "--- 2" in output
    assert generate(arguments) == 0 and capsys.readouterr().out == output
    assert generate([str(trained), "--temperature=0"]) == 0 and capsys.readouterr().out


def test_nearly_no_temperature_is_none(trained, capsys):
    result = []
    for temperature in ("0", "1e-38"):
        assert generate([str(trained), f"--temperature={temperature}", "--tokens=12"]) == 0
        result.append(capsys.readouterr().out)
    assert result[0] == result[1]


def test_prepared_text_is_no_published_model(trained, capsys):
    assert generate([str(trained.parent / "tokens")]) == 2
    assert "has no config.json: no run" in capsys.readouterr().err


def test_it_becomes_a_folder_of_its_own(trained, tmp_path):
    assert export([str(trained), str(tmp_path / "llama")]) == 0
    content = json.loads((tmp_path / "llama" / "config.json").read_text())
    assert (content["vocab_size"], content["num_hidden_layers"]) == (257, 1)


def test_its_model_card_has_scores_beside_guessing_and_no_path_of_the_machine(trained, tmp_path):
    assert export([str(trained), str(tmp_path / "llama")]) == 0
    card = (tmp_path / "llama" / "README.md").read_text()
    result = json.loads((trained / "result.json").read_text())
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert f"| loss | {result['metrics']['loss']['mean']:.4g} |" in card
    assert f"unigram loss {result['baselines']['unigram_loss']:.4g}" in card
    assert f"{result['parameters']['frozen']:,} kept at their random initial values" in card
    assert "jaxformer run text/lm:variant=frozen_qk,scale=tiny " in card
    assert "--config.task.tokens=tokens" in card and str(trained.parent) not in card


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            ["--prompt=a line that is longer than the model"],
            "the model takes at most 16 tokens, got a prompt of",
        ),
        (["--tokens=40"], "got a prompt of 1 and 40 to draw, 41 in all"),
        (["--top-p=2"], "top_p must be at most 1"),
        (["--temperature=-1"], "temperature must be at least 0"),
        (["--seed=100000000000000000000000"], "--seed must be at most 4,294,967,295"),
        (["--member=7"], "the run has members 0 to 0, got 7"),
    ],
)
def test_what_cannot_be_drawn_is_a_one_line_error(trained, capsys, arguments, message):
    assert generate([str(trained), *arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("error: ") and message in error and "\n" not in error


def test_a_run_without_text_is_refused(finished, tmp_path, capsys):
    assert generate([str(finished)]) == 2
    assert "was trained on Retrieval, which predicts no next token" in capsys.readouterr().err
    assert export([str(finished), str(tmp_path / "out")]) == 2
    assert "was not trained on prepared text" in capsys.readouterr().err


def test_another_text_of_the_same_name_is_refused(trained, tmp_path, capsys, monkeypatch):
    """Another text with the same number of tokens and the same vocabulary is refused."""
    before = trained.parent / "tokens"
    other = tmp_path / "other"
    (tmp_path / "o.txt").write_text("".join(f"file {i} or a word\n" for i in range(2000)))
    prepare([f"--dataset=text:{tmp_path / 'o.txt'}", f"--out={other}", "--tokenizer=bytes"])
    half = tmp_path / "half"
    arguments = [*SMALL, f"--config.task.tokens={before}", f"--workdir={half}"]
    monkeypatch.setattr("experiments.recipes.train.run", lambda config, workdir: 1)
    assert run(arguments) == 1  # it was stopped before its first step
    (half / "metrics.jsonl").touch()
    aside = before.rename(tmp_path / "aside")
    other.rename(before)
    capsys.readouterr()
    try:
        for command in (
            lambda: generate([str(trained), "--prompt=line"]),
            lambda: export([str(trained), str(tmp_path / "llama")]),
            lambda: run(arguments),
        ):
            assert command() == 2
            error = capsys.readouterr().err.strip()
            assert "fingerprint" in error and "repare that text" in error and "\n" not in error
    finally:
        before.rename(other)
        aside.rename(before)
    assert (
        run([*arguments[:-1], f"--workdir={trained}"]) == 0
    )  # what is finished says what it found
