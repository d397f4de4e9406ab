"""Figures of the attention paths against reference numbers, and the one-shot recipe."""

import json
import os
import signal
from pathlib import Path

import jax
import numpy as np
import pytest

from configs.common import hidden_markov
from experiments.cli import flags
from experiments.papers.attention_paths import accuracy, heads, kernels, problem
from experiments.recipes import oneshot, posterior_draws
from experiments.run import main
from jaxformer.core.errors import UserError
from jaxformer.io.run_folder import Workdir
from jaxformer.training.session import Session
from tests.experiments.conftest import instead
from theory.attention_paths.sampling import Sampler

GOLDEN = json.loads((Path(__file__).parents[2] / "reference/attention_paths.json").read_text())
TASK = hidden_markov("tiny")  # the reference's tiny problem
RECIPE_CONFIGS = [f"configs/attention_paths/{name}.py" for name in ("oneshot", "posterior")]


def test_figures_of_theory_have_the_reference_numbers():
    golden = GOLDEN["tiny"]
    with jax.enable_x64(True):
        sets = problem.Datasets(TASK, temperature=0.01, seed=0, n_seeds=1)
        curve = accuracy.measure_accuracy((5, 20), (), 0, 0, sets).metrics
        scores = heads.measure_head_scores((5,), sets).metrics
        drawn = kernels.measure_path_kernels(TASK, (5,), 0.01, 0)
        aligned = kernels.measure_alignment((5,), 8, sets).metrics
    for width in (5, 20):
        assert curve[f"action/N={width}"].mean == pytest.approx(golden[f"N{width}"]["action"])
        expected = golden[f"N{width}"]["acc"]
        assert curve[f"accuracy/N={width}"].mean == pytest.approx(expected, abs=2e-3)
    assert curve["accuracy/GP limit"].mean == pytest.approx(golden["GP"]["acc"], abs=2e-3)

    U = np.array(golden["N5"]["U1"])
    through = {"(1)1": (0, 1), "(1)2": (2, 3), "(2)1": (0, 2), "(2)2": (1, 3)}
    sums = {
        name: sum(abs(U[i, j]) for i in range(4) for j in range(4) if i in paths or j in paths)
        for name, paths in through.items()
    }
    for name, value in sums.items():
        expected = value / max(sums.values())
        assert scores[f"score/N=5/{name}"].mean == pytest.approx(expected, rel=1e-6)

    data = problem.example(0, **TASK)
    xi = data.attentioned
    K = np.einsum("ab,pan,qbn->pq", U, xi, xi, optimize=True) / (4 * 29)
    np.testing.assert_allclose(drawn.arrays["K,N=5"], K, rtol=1e-6)
    expected = data.labels @ K @ data.labels / (40 * np.linalg.norm(K))
    assert drawn.metrics["alignment/K,N=5"].mean == pytest.approx(expected, rel=1e-6)
    assert aligned["alignment/N=5"].mean == pytest.approx(expected, rel=1e-6)
    _, vectors = np.linalg.eigh(K)
    top = ((data.labels @ vectors[:, -5:]) ** 2).sum() / 40
    assert aligned["top5_overlap/N=5"].mean == pytest.approx(top, rel=1e-6)


def test_names_of_paths():
    assert problem.path_names((2, 3)) == ("11", "12", "13", "21", "22", "23")
    assert problem.path_names((11, 1))[-1] == "11-1"
    data = problem.example(0, **TASK | {"design": (("previous", "random"), ("uniform",))})
    assert data.names == ("11", "21") and data.attentioned.shape == (40, 2, 29)
    np.testing.assert_array_equal(data.only("21"), np.diag([0.0, 1.0]))


FEW = "--config.bayes.draws=16"
ONESHOT = (
    "--config=configs/attention_paths/oneshot.py:scale=tiny",
    "--config.data.size=8",
    "--config.data.patch=4",
    "--config.data.test_size=40",
    "--config.data.validation_size=40",
    "--config.bayes.examples=20",
    "--config.train.steps=40",
    "--config.train.eval_every=20",
    "--config.train.log_every=10",
    "--config.bayes.temperatures=0.3,1.0",
)


@pytest.mark.slow  # tests/hostile/test_kills.py has the same for every recipe
def test_oneshot_writes_a_complete_record_after_a_crash(tmp_path, monkeypatch):
    workdir = tmp_path / "run"
    options = [*ONESHOT, f"--workdir={workdir}"]
    save = Session.save

    def save_and_crash(self, state, step):
        save(self, state, step)
        if step == 20:
            self.checkpoints.wait()
            raise RuntimeError("the power went")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="power"):
        patch.setattr(Session, "save", save_and_crash)
        main(options)
    assert main(options) == 0
    result = json.loads((workdir / "result.json").read_text())
    assert [row["step"] for row in Workdir(workdir).rows()] == [10, 20, 20, 30, 40, 40]
    metrics = result["metrics"]
    for name in ("accuracy", "test/GP", "test/N=10", "glyphs/gradient_descent"):
        assert 0 <= metrics[name]["mean"] <= 1 and metrics[name]["n"] == 2
    for member in result["members"]:
        of_member = member["metrics"]
        gap = of_member["test/N=10"]["mean"] - of_member["test/GP"]["mean"]
        assert of_member["test/N=10_minus_GP"]["mean"] == pytest.approx(gap)
        assert set(member["temperature"]) == {"GP", "N=10"}
    with np.load(workdir / "arrays.npz") as arrays:
        assert arrays["U_theory"].shape == (2, 2, 4, 4) and arrays["U_learned"].shape == (2, 4, 4)
        best = arrays["validation"].argmax(2)
        np.testing.assert_allclose((arrays["overlap"] ** 2).sum(-1), 1, rtol=1e-9)
        five = (arrays["overlap"][0, :, :5] ** 2).sum(-1)
        gain = result["members"][0]["metrics"]["top5_overlap/N=10_minus_GP"]["mean"]
        assert gain == pytest.approx(five[1] - five[0])
        for i, member in enumerate(result["members"]):
            chosen = arrays["test/scan"][i, 1, best[i, 1]]
            assert member["metrics"]["test/N=10"]["mean"] == pytest.approx(chosen)
            first = arrays["test/low_first"][i][0]
            assert member["metrics"]["test/gradient_descent"]["mean"] == pytest.approx(first)
    assert {"constant", "nearest_pixels"} < set(result["baselines"])
    assert (workdir / "figure.png").exists() and (workdir / "curves.png").exists()


@pytest.mark.slow  # two networks whose posteriors are sampled, three times
def test_oneshot_resumes_from_saved_networks_and_draws(tmp_path, monkeypatch, capsys):
    options, whole, stopped = instead(ONESHOT, FEW), tmp_path / "whole", tmp_path / "stopped"
    assert main([*options, f"--workdir={whole}"]) == 0
    assert not (whole / "studies").exists()
    monkeypatch.setattr(posterior_draws, "SAVE_SECONDS", 0.0)
    advance, calls = Sampler.advance, []

    def advance_and_stop(self, state, steps):
        calls.append(steps)
        if len(calls) == 4:  # in the first network; the second process dies in the second
            os.kill(os.getpid(), signal.SIGTERM)
        if (stopped / "studies/000000.npz").exists() and len(calls) > 9:
            raise RuntimeError("the power went")
        return advance(self, state, steps)

    with monkeypatch.context() as patch:
        patch.setattr(Sampler, "advance", advance_and_stop)
        assert main([*options, f"--workdir={stopped}"]) == 128 + signal.SIGTERM
        assert (
            len(calls) == 4 and "Run the same command again: it resumes" in capsys.readouterr().out
        )
        with pytest.raises(RuntimeError, match="power"):
            main([*options, f"--workdir={stopped}"])
        assert "resuming from step" in capsys.readouterr().out
        assert (stopped / "studies/000001/state.npz").exists()
    assert main([*options, f"--workdir={stopped}"]) == 0
    assert "resuming from step" in capsys.readouterr().out
    with np.load(whole / "arrays.npz") as one, np.load(stopped / "arrays.npz") as other:
        assert {*one} == {*other}
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    results = [json.loads((d / "result.json").read_text())["metrics"] for d in (whole, stopped)]
    assert results[0] == results[1] and "test/N=10_sampled" in results[0]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--config.data.images=glyps", "Did you mean 'glyphs'"),
        ("--config.data.images=folder", "no folder or zip of images at"),
        ("--config.data.classes=(3,1,1)", "needs at least 2"),
        ("--config.data.classes=(3,4)", "three numbers"),
        ("--config.data.folder=nowhere", "must be where TensorFlow Datasets has its data"),
        ("--config.data.patch=5", "do not tile"),
        ("--config.bayes.temperatures=0.0", "above 0"),
        ("--config.model.heads=(2,0)", "heads"),
    ],
)
def test_a_mistake_in_a_oneshot_option_is_a_one_line_error(option, message, tmp_path, capsys):
    extra = ["--config.data.paths=('nowhere',)"] if "folder" in option else []
    assert main([*instead(ONESHOT, option, *extra), f"--workdir={tmp_path}/x"]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_paper_scale_without_its_data_names_the_extra_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    config = flags.load_config("configs/attention_paths/oneshot.py:scale=paper")
    with pytest.raises(UserError, match=r"extra \[data\]"):
        oneshot.phases_of(config)


@pytest.mark.slow
@pytest.mark.parametrize("file", RECIPE_CONFIGS)
def test_every_config_runs_at_tiny(file, tmp_path):
    assert main([f"--config={file}:scale=tiny", f"--workdir={tmp_path / 'run'}"]) == 0
    assert (tmp_path / "run/figure.png").read_bytes().startswith(b"\x89PNG")
