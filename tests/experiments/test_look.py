"""look.py: scores that were computed by hand, its files, and refused runs."""

import json
import re
import shutil

import jax.numpy as jnp
import numpy as np
import pytest

import jaxformer
from experiments.look import main
from experiments.recipes import look as look_recipe
from experiments.recipes.inside import look_inside
from experiments.run import main as run
from jaxformer.core import paths
from jaxformer.interp import observables
from jaxformer.io.run_folder import Workdir
from jaxformer.models.pretrained import save_folder, tiny
from jaxformer.training.metrics import Mean
from jaxformer.training.result import Result


def test_position_after_the_previous_occurrence():
    tokens = jnp.array([[5, 7, 5, 5, 7, 2]], jnp.int32)
    np.testing.assert_array_equal(observables.after_previous(tokens), [[-1, -1, 1, 3, 2, -1]])


def test_attention_to_averages_over_the_mask():
    weights = jnp.array([[[[1, 0, 0], [0.25, 0.75, 0], [0.5, 0.3, 0.2]]]])
    sources = jnp.array([[-1, 0, 1]], jnp.int32)
    everything = jnp.ones((1, 3), bool)
    attention = observables.attention_to(weights, sources, everything)
    np.testing.assert_allclose(attention, [(0.25 + 0.3) / 2], rtol=1e-6)
    last = jnp.array([[False, False, True]])
    np.testing.assert_allclose(observables.attention_to(weights, sources, last), [0.3], rtol=1e-6)
    assert np.isnan(observables.attention_to(weights, sources, ~everything)).all()


def test_the_command_and_the_recipe_give_the_same_scores(finished, tmp_path, capsys):
    workdir = Workdir(shutil.copytree(finished, tmp_path / "run"))
    assert main(["--plot", str(tmp_path), str(workdir.path)]) == 0
    printed = capsys.readouterr().out
    assert "seed 0: tokens of the last layer have covariance" in printed and "by chance" in printed
    assert re.search("block_0 +0 ", printed) and re.search("block_1 +3 ", printed)  # as addresses
    assert (tmp_path / "inspect.png").read_bytes().startswith(b"\x89PNG")
    scores = json.loads((tmp_path / "inspect.json").read_text())["seed 0"]
    for name in ("previous", "pairing", "induction"):
        assert np.shape(scores[name]) == (2, 4)
        assert 0 < np.min(scores[name]) <= np.max(scores[name]) <= 1
        assert 0 < scores[f"{name}_by_chance"] < 1
    assert -1 < scores["cosine"] < 1

    insides = {0: look_inside(*jaxformer.load(workdir.path))}
    cut = {0: {"accuracy/all heads cut": Mean(0.25, float("nan"), 1)}}
    result = look_recipe.with_heads(workdir, Result(**workdir.read("result.json")), insides, cut)
    assert result.metrics["accuracy/all heads cut"].mean == 0.25
    for name, heads in (
        ("pairing/layer 1", scores["pairing"][0]),
        ("induction/layer 2", scores["induction"][1]),
    ):
        assert result.metrics[name].mean == pytest.approx(max(heads))
        assert result.members[0]["metrics"][name].mean == pytest.approx(max(heads))
    assert result.baselines["induction_by_chance"] == scores["induction_by_chance"]
    assert (workdir / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_the_recipe_refuses_a_model_without_attention(capsys):
    config = "--config=configs/mixit/induction_head.py:scale=tiny"
    assert run([config, "--config.model.mixer=mixit", "--dry-run"]) == 2
    assert "model.mixer 'mixit' has no attention to measure" in capsys.readouterr().err


def test_an_unfinished_run_and_a_figure_are_refused(finished, tmp_path, capsys):
    for recipe, model, message in (
        ("train", "decoder", "is not finished"),
        ("solve", "", "'solve'"),
    ):
        parts = {} if recipe == "solve" else {"task": {}, "train": {}}
        config = {"recipe": recipe, "model": {"name": model}} | parts
        (tmp_path / "config.json").write_text(json.dumps({"config": config}))
        assert main([str(tmp_path)]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.slow
def test_fixed_mixing_has_no_maps(tmp_path, capsys):
    from tests.experiments.conftest import TINY

    arguments = ["--config=configs/mixit/retrieval.py:variant=mixit,scale=tiny", *TINY[1:]]
    assert run([*arguments, f"--workdir={tmp_path / 'run'}"]) == 0
    assert main([str(tmp_path / "run")]) == 0
    assert "no attention maps" in capsys.readouterr().out
    assert set(json.loads((tmp_path / "run/inspect.json").read_text())["seed 0"]) == {
        "covariance",
        "cosine",
    }


def test_a_published_model_without_finite_logits_predicts_nothing(tmp_path, capsys):
    """Block 1 has a weight that is nan: block 0 still predicts, and argmax of nan is no token."""
    tiny.save("gpt2", tmp_path / "gpt2", tiny.TEXTS)
    model, params, config = jaxformer.load(tmp_path / "gpt2")
    assert capsys.readouterr().err == ""
    bias = {"block_1/mlp/out/bias": np.full(16, np.nan, np.float32)}
    broken = paths.replace(params, bias)
    folder = save_folder(tmp_path / "broken", model, broken, config, tmp_path / "gpt2")

    assert main([str(folder), "--prompt=Madrid is located", f"--plot={tmp_path / 'plots'}"]) == 1
    printed = capsys.readouterr()
    assert printed.out == "" and not (tmp_path / "plots").exists()
    warning, error = printed.err.splitlines()
    assert warning == (
        f"warning: parameters of {folder} are nan or infinite (block_1/mlp/out/bias): its outputs "
        "may be nan. Check the file and the dtype."
    )
    assert error == (
        "error: expected finite logits, got nan or infinity after block_1, which predict no "
        "token. Its weights, such as block_1/mlp/out/bias, are not finite."
    )
