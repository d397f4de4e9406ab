"""Tests the commands of signal propagation: output, files and errors."""

import json
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.theory import config_json
from tests.theory.commands import run
from theory import advise, command_output, phase_map, trainability
from theory.advise import report
from theory.advise.question import parse
from theory.signal import effective_beta
from theory.signal.measurement import measure

PAPER = ["--width", "600", "--heads", "6", "--sigma-v2", "0.2", "--sigma-w2", "0.2"]
PAPER += ["--sigma-b2", "0.0004"]


def answer(capsys, *arguments):
    """Returns the JSON answer to these flags, with the paper's flags as defaults."""
    flags = dict(zip(PAPER[::2], PAPER[1::2], strict=True))
    others = [word for flag in flags if flag not in arguments for word in (flag, flags[flag])]
    run(advise.main, [*others, "--json", *arguments])
    return json.loads(capsys.readouterr().out)


def test_advise_names_the_regimes_of_figure_1(capsys):
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


def written(tmp_path, config):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    return path


def test_advise_reads_a_config(tmp_path, capsys):
    path = written(tmp_path, config_json.BERT | {"max_position_embeddings": 64})
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
    assert shown.startswith(
        "judged            bert: post-norm, bidirectional, LayerNorm, W_O, hidden 4d, gelu, "
        "rho0 = 0.3333\n"
    )
    assert (
        "regime            trainable" in shown and "0.1506   (the paper's formula: 0.0126)" in shown
    )
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert "layers            blocks 1 to 12 are judged; 0 is the embedding" in shown
    assert "assumed           64 tokens, the config's longest sequence" in shown
    assert shown.count("\nnext  ") == 4 and "train.signal=True" in shown
    path.rename(tmp_path / "config.json")
    run(advise.main, [str(tmp_path)])
    assert "regime            trainable" in capsys.readouterr().out


def test_advise_finds_a_run_in_a_folder(tmp_path):
    (tmp_path / "config.json").write_text('{"config": {}, "config_hash": "0"}')
    args, question = parse("", [str(tmp_path)])
    assert args.run == tmp_path and args.config is None and question is None


def test_maps_write_a_figure_and_its_arrays(tmp_path, capsys):
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


def config_answer(tmp_path, capsys, config, *flags):
    run(advise.main, [str(written(tmp_path, config)), "--json", *flags])
    return json.loads(capsys.readouterr().out)


def test_rho0_is_in_every_number(tmp_path, capsys):
    own = config_answer(tmp_path, capsys, config_json.BERT)
    assert own["rho0"] == pytest.approx(1 / 3)
    # By bisection with theory.signal.propagate from 1/3: .411; from 0 it would be .291.
    assert own["critical_alpha"] == pytest.approx(0.411, abs=1e-3)
    assert own["cosine"][1] == pytest.approx(0.357, abs=1e-3)
    zero = config_answer(tmp_path, capsys, config_json.BERT, "--rho0", "0")
    assert zero["critical_alpha"] == pytest.approx(0.291, abs=1e-3)
    # More alike tokens have less spread scores: attention bears a larger beta.
    assert own["critical_beta"] > zero["critical_beta"] + 0.1
    alike = config_answer(tmp_path, capsys, config_json.BERT, "--rho0", "0.999")
    assert alike["regime"] == "rank collapse" and alike["critical_alpha"] is None
    text_file = tmp_path / "words.txt"
    text_file.write_text("a b a b")
    text = config_answer(tmp_path, capsys, config_json.BERT, "--tokens", str(text_file))
    assert text["rho0"] == pytest.approx((1 + 1 / 3) / 3)  # words repeat in a third of the pairs
    assert any("each word of" in line for line in text["assumptions"])


def test_trainable_needs_signal_keys_and_gradients(tmp_path, capsys):
    base = ["--width", "600", "--layers", "12", "--length", "512"]
    nothing = answer(capsys, *base, "--init-std", "0", "--sigma-v2", "0", "--sigma-w2", "0")
    assert nothing["regime"].startswith("no signal")
    # No step at sqrt 2: the keys decide, and they shrink smoothly.
    few = [answer(capsys, *base, "--beta", str(b)) for b in (1.3, 1.41, 1.42)]
    keys = [min(one["keys"]) for one in few]
    assert keys[0] > keys[1] > keys[2] > 0.97 * keys[1]
    assert few[1]["regime"] == few[2]["regime"] == "trainable"
    edge = few[0]["critical_beta"]
    over = answer(capsys, *base, "--beta", str(1.01 * edge))
    under = answer(capsys, *base, "--beta", str(0.99 * edge))
    assert over["regime"] == "entropy collapse" and under["regime"] == "trainable"
    # Orders of magnitude between the ends: gradients explode before tokens are alike.
    steep = ["--alpha", "0.1", "--alpha-mlp", "0", "--activation", "tanh", "--sigma-b2", "0.01"]
    steep += ["--sigma-w2", "9", "--sigma-v2", "9", "--width", "64", "--length", "64"]
    wild = answer(capsys, *steep, "--heads", "1", "--layers", "24", "--rho0", "0.5")
    assert "exploding gradients" in wild["regime"] and wild["gradient_ratio"] > 100


@pytest.mark.parametrize("what", ["residual", "init-std", "depth-scale", "layers"])
def test_solved_settings_meet_their_target(tmp_path, capsys, what):
    flags = ["--length", "64", "--solve", what, "--target-cosine", "0.4"]
    result = config_answer(tmp_path, capsys, config_json.BERT, *flags)["solved"]
    assert set(result["lines"]) == {"config.json", "Flax", "PyTorch"}
    assert result["keys"] >= 8
    if what == "layers":
        layers = round(12 * result["factor"])
        after = [
            config_answer(tmp_path, capsys, config_json.BERT, "--length", "64", "--layers", str(n))
            for n in (layers, layers + 1)
        ]
        assert after[0]["cosine"][-1] <= 0.4 < after[1]["cosine"][-1]
        return
    assert result["cosine"] == pytest.approx(0.4, abs=1e-5) and 0.2 < result["factor"] < 5
    if what == "init-std":
        line = json.loads("{" + result["lines"]["config.json"] + "}")
        after = config_answer(tmp_path, capsys, config_json.BERT | line, "--length", "64")
        assert after["cosine"][-1] == pytest.approx(0.4, abs=1e-3)


def test_solve_beta_and_a_target_that_is_already_met(tmp_path, capsys):
    flags = ["--length", "64", "--solve", "beta", "--target-keys", "40", "--beta", "1.5"]
    result = config_answer(tmp_path, capsys, config_json.BERT, *flags)["solved"]
    assert result["keys"] == pytest.approx(40, rel=1e-4) and result["factor"] < 1
    met = config_answer(tmp_path, capsys, config_json.BERT, "--solve", "beta")["solved"]
    assert met["factor"] == 1 and met["lines"] == {
        "nothing": "the present network meets the target"
    }


@pytest.mark.slow  # compiles networks twice
def test_the_networks_of_a_check_are_float64(capsys):
    """The command prints the numbers of its functions in float64, to the last digit."""
    flags = ["--layers", "2", "--width", "16", "--length", "8", "--check"]
    result = answer(capsys, *flags, "--heads", "2")["checked"]
    _, question = parse("", [*flags, "--heads", "2", *PAPER[4:]])
    net = question.architecture
    keys = jax.vmap(jax.random.key)(np.arange(result["seeds"]))
    layers, _ = measure(keys, net, question.length, question.rho0, question.repeat)
    assert result["cosine_by_layer"] == layers.cosine.mean(0).tolist()


def test_the_figure_names_the_number_of_measured_networks(tmp_path, monkeypatch, capsys):
    result = answer(capsys, "--layers", "2", "--length", "8")
    result["checked"] = {"seeds": 5, "cosine_by_layer": [0.1, 0.2, 0.3]}
    drawn = []
    monkeypatch.setattr(report, "save_figure", lambda figure, *_, **__: drawn.append(figure))
    report.plot_answer(result, tmp_path / "a.png", quiet=True)
    labels = [line.get_label() for line in drawn[0].axes[0].lines]
    assert "measured, 5 networks" in labels


def test_a_quiet_figure_prints_neither_of_its_files(tmp_path, capsys):
    figure, _ = command_output.new_figure(1, (2, 2))
    arrays = {"x": np.zeros(2)}
    command_output.save_figure(figure, tmp_path / "a.png", arrays, quiet=True)
    assert capsys.readouterr().out == "" and (tmp_path / "a.npz").exists()
    command_output.save_figure(figure, tmp_path / "a.png", arrays)
    files = [tmp_path / "a.png", tmp_path / "a.npz"]
    assert capsys.readouterr().out == "".join(f"wrote {file}\n" for file in files)


def test_advise_is_quick(tmp_path):
    # Importing jax alone would take longer than the whole command.
    path = written(tmp_path, config_json.GPT2)
    program = (
        "import sys; from theory.advise import main; main([sys.argv[1]]); "
        "assert not {'jax', 'scipy', 'flax', 'matplotlib'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


DEEP = ["--width", "64", "--layers", "60", "--length", "8"]
SMALL = [*PAPER, "--layers", "2", "--length", "8"]


WRONG = [
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
    (advise.main, ["GPT2"], "a gpt2 model lacks the field 'n_positions'"),
    (advise.main, ["MAMBA"], "unknown model_type 'mamba'"),
    (advise.main, ["FOLDER"], "FOLDER has no config.json: expected the folder of a run or"),
    (advise.main, ["BINARY"], "is not JSON"),
    (advise.main, ["BERT", "--causal"], "--causal: the config.json already has this"),
    (advise.main, ["BERT", "--length", "1" + 25 * "0"], "--length must be a whole number from"),
    (advise.main, ["BERT", "--rho0", "1.1"], r"--rho0 must be in \[0, 1\]"),
    (advise.main, ["BERT", "--tokens", "nowhere.txt"], "No such file"),
    (advise.main, ["BERT", "--tokens", "MAMBA", "--rho0", "0.2"], "not both"),
    (advise.main, ["BERT", "--epsilon", "0"], "--epsilon must lie between 0 and 1"),
    (advise.main, ["BERT", "--epsilon", "1"], "--epsilon must lie between 0 and 1"),
    (advise.main, ["BERT", "--solve", "everything"], "unknown --solve 'everything'"),
    (advise.main, ["BERT", "--solve", "beta", "--target-keys", "512"], "no beta between"),
    (advise.main, ["BERT", "--solve", "layers", "--target-cosine", ".01"], "no number of layers"),
    (advise.main, ["BERT", "--run", "DIR"], "--run reads a run's own network"),
    (advise.main, ["--run", "nowhere"], "nowhere"),
    (advise.main, [*SMALL, "--alpha", "1e200"], "--alpha must be in"),
    (advise.main, [*DEEP, "--pre-norm", "--alpha", "1e6"], "overflows"),
    (advise.main, [*SMALL, "--hidden", "0"], "--hidden must be a whole number"),
    (advise.main, [*DEEP, "--heads", "0"], "--heads must be a whole number"),
    (advise.main, ["LIST"], "must hold a JSON object"),
    (advise.main, ["BROKEN"], "is not JSON"),
    (phase_map.main, ["--out", "map.jpg"], "must end in .png or .pdf or .svg"),
    (phase_map.main, ["--out", "no/where.png"], "no folder 'no'"),
    (
        trainability.main,
        ["--epsilon", "2", "--points", "3"],
        "--epsilon must be between 0 and 1",
    ),
    (trainability.main, ["--overlaps", "exac"], "--overlaps has no choice 'exac'"),
]


def test_errors_have_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    files = {"GPT2": '{"model_type": "gpt2"}', "LIST": "[1]", "BROKEN": "{", "BINARY": "\x00"}
    files |= {"MAMBA": '{"model_type": "mamba"}', "BERT": json.dumps(config_json.BERT)}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "FOLDER").mkdir()
    files["FOLDER"] = ""
    for command, arguments, message in WRONG:
        with pytest.raises(SystemExit) as stop:
            run(command, arguments)
        error = capsys.readouterr().err
        assert stop.value.code == 2 and error.count("\n") == 1, arguments
        assert re.search(message, error), f"{arguments}: {error}"
        assert sorted(p.name for p in tmp_path.iterdir()) == sorted(files)


def test_the_gpt2_example_of_the_signal_page_is_printed(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(config_json.GPT2))
    advise.main([str(tmp_path / "config.json"), "--length", "1024"])
    printed = capsys.readouterr().out.splitlines()
    page = (Path(__file__).parents[2] / "docs/signal.md").read_text()
    block = page.split("$ jaxformer advise gpt2/config.json --length 1024\n")[1]
    shown = [line.strip() for line in block.split("```")[0].splitlines()]
    assert len(shown) == 5 and {*shown} <= {*printed}
