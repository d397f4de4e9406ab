"""Figures of signal propagation and masked language modelling, through the real command."""

import json

import numpy as np
import pytest

from experiments.run import main
from jaxformer.io.run_folder import Workdir
from jaxformer.training.probes import full_attention_entropy
from tests.experiments.papers import drawing
from theory.rem import attention_entropy as predicted_entropy

MASKED = (
    "--config=configs/two_failure_modes/fig1_losses.py:variant=entropy_collapse,scale=tiny",
    "--config.model.layers=1",
    "--config.model.sigma_v2=1",
    "--config.n_seeds=2",
    "--config.train.log_every=1",
    "--config.train.eval_every=30",
    "--config.train.steps=30",
    "--config.data.test_size=100",
)


def test_a_figure_records_measurement_theory_and_limit(tmp_path, monkeypatch):
    config = "--config=configs/two_failure_modes/fig1_maps.py:scale=tiny"
    options = [config, "--config.n_seeds=6"]
    drawing.measured_then_drawn(options, tmp_path / "run", monkeypatch)
    result = json.loads((tmp_path / "run/result.json").read_text())
    weights = np.load(tmp_path / "run/arrays.npz")["weights_beta_1.8"]
    np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-5)
    for beta, limit in ((0.1, 0.995), (1.8, 0.0)):
        name = f"entropy_fraction_beta_{beta:g}"
        measured, theory = result["metrics"][name], result["baselines"][f"exact_{name}"]
        # d = 64 is narrow: 4 standard errors and a finite-width error of at most 0.02.
        assert abs(measured["mean"] - theory) < 4 * measured["sem"] + 0.02 and measured["n"] == 6
        assert result["baselines"][f"limit_{name}"] == pytest.approx(limit)


@pytest.mark.slow  # test_configs.py builds these metrics
def test_masked_text_trains_and_logs_the_entropy_of_attention(tmp_path):
    assert main([*MASKED, f"--workdir={tmp_path}/run"]) == 0
    workdir = Workdir(tmp_path / "run")
    rows = [row for row in workdir.rows() if "loss" in row]
    assert [row["step"] for row in rows] == [*range(1, 31)]
    entropy = np.array([row["attention_entropy"] for row in rows])
    assert entropy.shape == (30, 2) and ((entropy > 0) & (entropy < 1)).all()
    # At step 0 the entropy is that of theory; repeated tokens have rho > 0, which raises it.
    low, high = (float(predicted_entropy(4.0, rho, 16)) / np.log(16) for rho in (0.0, 0.5))
    assert low - 0.03 < entropy[0].mean() < high
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["metrics"]["loss"]["mean"] < 3.6 < np.log(66)
    ends = [result["metrics"][f"attention_entropy_{end}"]["mean"] for end in ("start", "end")]
    np.testing.assert_allclose(ends, entropy[[0, -1]].mean(1), rtol=1e-6)
    assert 1.5 < result["baselines"]["bigram_loss"] < result["baselines"]["unigram_loss"]


WRONG_OVERRIDES = {
    "train.probes=('attention_entrpy',)": "Did you mean 'attention_entropy'",
    "model.betta=1": "Did you mean 'model.beta'",
    "model.beta=-1": "beta must be finite and at least 0, got -1.0",
    "model.heads=3": "3 heads do not divide the width 32",
    "task.text=nowhere.txt": "cannot read the text 'nowhere.txt': No such file",
    "task.masking=brt": "Did you mean 'bert'",
}


def test_a_wrong_override_is_reported_in_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for override, message in WRONG_OVERRIDES.items():
        assert main([*MASKED, f"--config.{override}"]) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ") and error.count("\n") == 1 and message in error, override


def test_the_probe_is_the_entropy_over_ln_T():
    one_of_two = np.array([[1.0, 0, 0, 0], [0.5, 0.5, 0, 0]])
    value = full_attention_entropy([one_of_two, np.full((4, 4), 0.25)])
    np.testing.assert_allclose(value, (0.25 + 1) / 2, rtol=1e-6)
