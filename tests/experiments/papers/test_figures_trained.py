"""Figures that train: the fit inside a figure, the allocation of parameters, Table 6 on text."""

import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.papers import fitting
from experiments.papers.associations import allocation
from experiments.papers.mixit import depth, depth_trained
from experiments.papers.outcome import Outcome, Training
from jaxformer.core import optim
from jaxformer.core.errors import UserError
from jaxformer.core.partition import Partition
from jaxformer.interp import observables
from jaxformer.models.recall import recall
from jaxformer.tasks.text import CausalText
from tests.experiments.papers import drawing


def test_a_fit_in_a_figure_trains_in_float32_and_marks_divergence():
    task = CausalText(window=4)
    sizes = dict(vocab_size=task.vocab_size, length=4, width=4, feed_forward=("none",))
    model = recall(**sizes, dtype=jnp.float32, param_dtype=jnp.float32)
    partition = Partition(allocation.PARTITION_RULES)
    constant = optim.schedule("constant", 3, 0)
    tx = optim.optimizer(partition, {"train": optim.SGD()}, 0.0, constant)
    with jax.enable_x64(True):
        result = fitting.fitted(
            model, task, partition, tx, rates=(0.1, 1e38), seed=3, n_seeds=2, steps=3, batch_size=2
        )
    assert result.losses_RxSxT.shape == (2, 2, 3)
    assert (
        np.isfinite(result.losses_RxSxT[0]).all() and np.isnan(result.losses_RxSxT[1, :, -1]).all()
    )
    before, after = (
        p["block_0"]["attn"]["value"]["kernel"] for p in (result.initial, result.params)
    )
    assert before.dtype == after.dtype == np.float32 and before.shape == (4, 4, 4)
    assert (before[:2] != after[:2]).any() and (before[0] == before[2]).all()  # seeds are paired
    assert (result.initial["embed"]["embedding"] == result.params["embed"]["embedding"]).all()


def test_widths_keep_the_total_of_parameters():
    tokens = jnp.zeros((1, 1), int)
    for total in (50_000, 200_000):
        for multiplier in (0, 1, 4, 16):
            d = allocation.width_of(total, multiplier)
            kinds = ("mlp" if multiplier else "none",) * allocation.LAYERS
            sizes = dict(vocab_size=3, length=3, width=d, mlp_multiplier=max(multiplier, 1))
            model = recall(**sizes, feed_forward=kinds)
            shapes = jax.eval_shape(model.init, jax.random.key(0), tokens)["params"]
            trained = Partition(allocation.PARTITION_RULES).count(shapes)["train"]
            assert abs(trained / total - 1) < 0.04
            mlp = sum(
                leaf.size for block in shapes.values() for leaf in jax.tree.leaves(block.get("mlp"))
            )
            np.testing.assert_allclose(mlp / trained, allocation.mlp_share(multiplier))


def test_no_model_can_beat_the_chain():
    task = CausalText(window=2000)
    batch = jax.jit(task.example)(jax.random.key(0), 0)
    bound = task.baselines(jax.tree.map(lambda x: x[None], batch))["bigram_loss"]
    assert abs(allocation.chain_loss(task) - bound) < 0.1


def test_a_cell_that_diverges_at_every_rate_loses_only_itself(monkeypatch, capsys):
    lost = [4]  # multipliers whose networks diverge

    def fit(model, *_, rates, n_seeds, steps, **__):
        losses = np.full((len(rates), n_seeds, steps), 2.0 + model.spec.width / 100)
        return SimpleNamespace(losses_RxSxT=losses * (np.nan if kind(model) in lost else 1.0))

    def kind(model):
        return model.spec.mlp_multiplier if model.spec.feed_forward[0] == "mlp" else 0

    monkeypatch.setattr(allocation, "fitted", fit)
    given = {"text": "", "window": 8, "totals": (5000,), "multipliers": (0, 4, 16), "momentum": 0.9}
    training = Training((0.1, 0.3), 4, 20, 0, 2)
    measured = allocation.measure_allocation(**given, training=training)
    assert "mlp=0.73 diverges at every learning rate" in capsys.readouterr().out
    gains = [name for name in measured.metrics if name.startswith("gain/")]
    assert gains == ["gain/total=5000/mlp=0.91"] and measured.metrics[gains[0]].mean > 0
    allocation.draw_allocation(measured.arrays, (5000,), 20)
    lost += [0, 16]
    with pytest.raises(UserError, match="every cell diverges"):
        allocation.measure_allocation(**given, training=training)


def test_the_verdict_of_table_6():
    values = {"random": np.array([[[1.0, 0.1], [4.0, 0.2]]] * 3), "mixit": np.full((3, 2, 2), 0.1)}
    verdict = depth.verdict(values)
    assert verdict == {
        "covariance_grows": False,
        "covariance_mixit_below": True,
        "cosine_grows": False,
        "cosine_mixit_below": False,
    }
    outcome = Outcome()
    depth.add_numbers(outcome, values, (2, 32))
    numbers = outcome.metrics
    assert numbers["log_growth/covariance/random"].mean == pytest.approx(np.log(4))
    assert numbers["log_random_over_mixit/covariance"].mean == pytest.approx(np.log(10))
    assert numbers["log_random_over_mixit/cosine"].mean == pytest.approx(0)


def test_dimensions_count_the_directions_that_states_fill():
    rng = np.random.default_rng(0)
    directions = np.linalg.qr(rng.standard_normal((8, 8)))[0]
    sides = np.concatenate([np.eye(3), -np.eye(3)])  # equal variance in three directions
    states = (sides @ directions[:3] * 1e3 + rng.standard_normal(8)).reshape(2, 3, 8)
    assert observables.dimensions(jnp.asarray(states)) == pytest.approx(3, rel=1e-5)
    line = np.outer(range(6), directions[0]).reshape(2, 3, 8)
    assert observables.dimensions(line) == pytest.approx(1, rel=1e-5)
    assert observables.dimensions(np.ones((2, 3, 8))) == 0

    outcome = Outcome()
    filled_SxL = np.array([[8.0, 2.0], [16.0, 4.0]])
    depth_trained.add_dimensions(outcome, "random", filled_SxL, (2, 32), "before/")
    assert outcome.metrics["before/dimensions/random/L=32"].mean == 3
    growth = outcome.metrics["before/log_growth/dimensions/random"]
    assert growth.mean == pytest.approx(-np.log(4))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "arguments", "name"),
    [
        ("associations/allocation.py:scale=tiny", (), "gain/total=5000/mlp=0.73"),
        (
            "mixit/covariance_depth.py:when=trained,scale=tiny",
            ("--config.figure.depths=(1,2)",),
            "before/log_growth/dimensions/mixit",
        ),
    ],
)
def test_a_figure_that_trains_ends_with_its_record(config, arguments, name, tmp_path, monkeypatch):
    workdir = tmp_path / "run"
    arguments = [f"--config=configs/{config}", *arguments]
    drawing.measured_then_drawn(arguments, workdir, monkeypatch)
    metrics = json.loads((workdir / "result.json").read_text())["metrics"]
    assert name in metrics
    losses = [v["mean"] for metric, v in metrics.items() if metric.startswith("loss/")]
    assert losses and all(2 < loss < 6 for loss in losses)
