"""The commands of signal propagation: what they say, what they write, how they fail."""

import json
import re

import numpy as np
import pytest

from theory import advise, phase_map, trainability
from theory.command import run
from theory.signal import effective_beta

PAPER = ["--width", "600", "--heads", "6", "--sigma-v2", "0.2", "--sigma-w2", "0.2"]
PAPER += ["--sigma-b2", "0.0004"]


def answer(capsys, *arguments):
    """The answer to these flags; those of the paper stand where they say nothing else."""
    flags = dict(zip(PAPER[::2], PAPER[1::2], strict=True))
    others = [word for flag in flags if flag not in arguments for word in (flag, flags[flag])]
    run(advise.main, [*others, "--json", *arguments])
    return json.loads(capsys.readouterr().out)


def test_advise_regimes(capsys):
    # The paper's four settings of figure 1.
    deep = ["--layers", "60", "--length", "64", "--beta", "0.02"]
    one = answer(capsys, *deep, "--alpha", "1")
    assert one["regime"] == "rank collapse"
    assert one["cosine"][60] == pytest.approx(0.99967, abs=5e-6)
    assert one["alpha_to_boundary"] == pytest.approx(1 - one["critical_alpha"])
    two = answer(capsys, *deep, "--alpha", "1.5")
    assert two["regime"] == "trainable" and two["critical_alpha"] == one["critical_alpha"]
    assert two["cosine"][60] == pytest.approx(0.94401, abs=5e-6)
    three = answer(capsys, "--layers", "12", "--length", "64", "--beta", "1.8")
    assert three["regime"] == "entropy collapse"
    assert three["entropy_fraction"][0] < 0.5
    # Following the advice works: the largest depth, the smaller value variance.
    layers = one["collapse_layer"] - 1
    fewer = ["--layers", str(layers), "--length", "64", "--beta", "0.02"]
    assert answer(capsys, *fewer)["regime"] == "trainable"
    variance = 0.2 * (1 / one["critical_alpha"]) ** 2
    assert answer(capsys, *deep, "--sigma-v2", str(0.99 * variance))["regime"] == "trainable"
    assert answer(capsys, *deep, "--sigma-v2", str(1.01 * variance))["regime"] == "rank collapse"
    never = answer(capsys, *deep, "--alpha-mlp", "0")
    assert never["critical_alpha"] is None and "no alpha helps" in never["advice"][0]


def test_advise_reads_a_config(tmp_path, capsys):
    config = {
        "model_type": "bert",
        "num_hidden_layers": 12,
        "hidden_size": 768,
        "num_attention_heads": 12,
        "max_position_embeddings": 64,  # the tables of 64 tokens are built already
        "initializer_range": 0.02,
        "hidden_act": "gelu",
        "intermediate_size": 3072,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    run(advise.main, [str(path), "--json"])
    bert = json.loads(capsys.readouterr().out)
    assert bert["beta"] == pytest.approx(0.02**2 * 768 / np.log(64) ** 0.5)
    assert bert["beta_by_the_papers_formula"] == pytest.approx(bert["beta"] / 12)
    assert effective_beta(0.02, 768, 512) == pytest.approx(0.12299493)  # BERT itself
    assert (bert["layers"], bert["activation"], bert["regime"]) == (12, "gelu", "trainable")
    # The output projection: sigma_V^2 is the product of two variances.
    assert bert["sigma_v2"] == pytest.approx((0.02**2 * 768) ** 2)
    run(advise.main, [str(path), "--plot", str(tmp_path / "a.png")])
    shown = capsys.readouterr().out
    assert (
        "regime            trainable" in shown and "0.1506   (the paper's formula: 0.0126)" in shown
    )
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_maps_are_written_whole(tmp_path, capsys):
    out = tmp_path / "map.png"
    run(phase_map.main, ["--length", "64", "--points", "20", "--out", str(out)])
    arrays = np.load(tmp_path / "map.npz")
    assert arrays["exact"].shape == arrays["limit"].shape == (20, 20)
    assert arrays["limit"][0, 0] == 1 and arrays["exact"][-1, 0] < 0.1
    before = out.read_bytes()
    with pytest.raises(SystemExit) as stop:
        run(phase_map.main, ["--length", "64", "--points", "20", "--out", str(out)])
    assert stop.value.code == 2 and "--force overwrites" in capsys.readouterr().err
    assert out.read_bytes() == before
    edge = tmp_path / "edge.png"
    flags = ["--layers", "12", "--length", "64", "--points", "20", "--out", str(edge)]
    run(trainability.main, flags)
    arrays = np.load(tmp_path / "edge.npz")
    assert arrays["cosine"].shape == (20, 20) and 0.3 < arrays["critical_alpha"][0] < 0.5
    run(trainability.main, [*flags, "--force"])
    names = {"edge.npz", "edge.png", "map.npz", "map.png"}
    assert {p.name for p in tmp_path.iterdir()} == names


SMALL = [*PAPER, "--layers", "2", "--length", "8"]


@pytest.mark.parametrize(
    "command, arguments, message",
    [
        (advise.main, ["--layers", "3"], "expected a config.json or --width, --length"),
        (advise.main, ["nowhere.json"], "No such file"),
        (advise.main, [*PAPER, "--layers", "0", "--length", "8"], "--layers must be a whole"),
        (advise.main, [*PAPER, "--layers", "2", "--length", "1"], "--length must be a whole"),
        (
            advise.main,
            [*SMALL, "--alpha", "-1"],
            "--alpha must be",
        ),
        (
            advise.main,
            [*SMALL, "--alpha", "nan"],
            "--alpha must be",
        ),
        (advise.main, [*PAPER, "--layers", "x"], "--layers must be a whole number, got 'x'"),
        (advise.main, [*SMALL, "--activation", "tan"], "'tanh'"),
        (advise.main, ["GPT2"], "unknown model_type .* 'gpt2'"),
        (advise.main, ["LIST"], "must hold a JSON object"),
        (advise.main, ["BROKEN"], "is not JSON"),
        (phase_map.main, ["--out", "map.pdf"], "must end in .png"),
        (phase_map.main, ["--out", "no/where.png"], "no folder 'no'"),
        (trainability.main, ["--epsilon", "2", "--points", "3"], "epsilon must be in"),
        (trainability.main, ["--overlaps", "exac"], "--overlaps has no choice 'exac'"),
    ],
)
def test_errors_are_one_line(tmp_path, monkeypatch, capsys, command, arguments, message):
    monkeypatch.chdir(tmp_path)
    files = {"GPT2": '{"model_type": "gpt2"}', "LIST": "[1]", "BROKEN": "{"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(SystemExit) as stop:
        run(command, arguments)
    error = capsys.readouterr().err
    assert stop.value.code == 2 and error.count("\n") == 1
    assert re.search(message, error)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(files)
