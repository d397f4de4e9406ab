"""Figures about depth and the covariance SDE, from the command to the record."""

import json

import numpy as np
import pytest
from scipy.stats import ks_2samp

from experiments.papers.mixit.sde_paths import ks
from tests.experiments.papers import drawing


@pytest.mark.slow  # a whole figure; test_covariance_sde.py has the theory
def test_tokens_of_a_random_transformer_become_similar_with_depth(tmp_path, monkeypatch):
    config = "--config=configs/mixit/covariance_depth.py:scale=tiny"
    sizes = ("--config.figure.sequences=4", "--config.figure.length=16")
    drawing.measured_then_drawn([config, *sizes], tmp_path / "run", monkeypatch)
    metrics = json.loads((tmp_path / "run/result.json").read_text())["metrics"]
    for verdict in ("covariance_grows", "covariance_mixit_below", "cosine_mixit_below"):
        assert metrics[f"verdict/{verdict}"]["mean"] == 1
    cosines = [metrics[f"cosine/random/L={L}"]["mean"] for L in (2, 4, 8)]
    assert cosines == sorted(cosines) and cosines[0] > 0 and cosines[-1] < 1
    with np.load(tmp_path / "run/arrays.npz") as arrays:
        assert arrays["random"].shape == (2, 3, 2)


@pytest.mark.parametrize("decimals", [9, 1])  # with one decimal many numbers are equal
def test_the_distance_of_two_samples_equals_scipys(decimals):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=300).round(decimals), rng.normal(0.2, 1.3, size=170).round(decimals)
    assert ks(x, y) == pytest.approx(ks_2samp(x, y).statistic, abs=1e-12)
