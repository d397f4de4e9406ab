"""Optimizers of optax in `jaxformer.train`, and functions of a learning rate that return one."""

from functools import partial
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxformer
from jaxformer import api
from jaxformer.core import optim
from jaxformer.core.config_fields import json_fields
from jaxformer.core.errors import UserError
from jaxformer.core.partition import Partition
from jaxformer.core.settings import DataSettings
from jaxformer.tasks.source import make_source
from jaxformer.training.population import Population
from jaxformer.training.shapes import shapes_of
from jaxformer.training.step import create, make_step
from jaxformer.training.user_optimizer import check_learning_rate, user_optimizers
from tests.helpers import failures
from tests.training.tiny import TASK, network

SIZES = DataSettings(test_size=8, validation_size=8)
SHORT = dict(steps=30, batch_size=8, eval_every=30, log_every=1, data=SIZES, progress=False)
EVERYTHING = Partition(((".*", "train"),))
STEPS = 30
WARM = optax.warmup_cosine_decay_schedule(0.0, 1e-2, 10, 40)

COMPLETE = {
    "adabelief": optax.adabelief(1e-2),
    "adafactor": optax.adafactor(1e-2),
    "adagrad": optax.adagrad(1e-1),
    "adam": optax.adam(1e-2),
    "adamax": optax.adamax(1e-2),
    "adamw": optax.adamw(1e-2),
    "adamw with warm-up from 0": optax.adamw(WARM),
    "clip and adamw": optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(WARM)),
    "injected": optax.inject_hyperparams(optax.adamw)(learning_rate=1e-2),
    "lamb": optax.lamb(1e-2),
    "lion": optax.lion(3e-3),
    "multi-steps": optax.MultiSteps(optax.adamw(1e-2), 3),
    "multi-transform": optax.multi_transform(
        {"a": optax.adam(1e-2)}, lambda params: jax.tree.map(lambda _: "a", params)
    ),
    "nadam": optax.nadam(1e-2),
    "radam": optax.radam(1e-2),
    "rmsprop": optax.rmsprop(3e-3),
    "scaled by hand": optax.chain(optax.scale_by_adam(), optax.scale(-1e-2)),
    "sgd": optax.sgd(0.1),
    "sgd with momentum": optax.sgd(0.1, momentum=0.9, nesterov=True),
    "yogi": optax.yogi(1e-2),
}
OF_RATE = {
    "adamw": optax.adamw,
    "clip and adam": lambda rate: optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate)),
    "decay apart from the rate": lambda rate: optax.chain(
        optax.adam(rate), optax.add_decayed_weights(-1e-4)
    ),
    "lion": lambda rate: optax.lion(rate / 3),
}


class TableSpec(NamedTuple):
    vocab_size: int = TASK.vocab_size
    length: int = TASK.length
    causal: bool = True


class Table(nn.Module):
    """Logits from the current token: a table of embeddings, a norm and a dense layer."""

    spec: TableSpec = TableSpec()

    @nn.compact
    def __call__(self, tokens, positions=None):
        h = nn.LayerNorm(name="final_norm")(nn.Embed(self.spec.vocab_size, 16)(tokens))
        if positions is not None:
            h = jnp.take_along_axis(h, positions[..., None], axis=1)
        return nn.Dense(self.spec.vocab_size)(h)


def losses(optimizer, learning_rate=1.0, model=None):
    """Returns the losses of STEPS training steps of a small model on one batch."""
    model = model or Table()  # each optimizer compiles its own program
    specs = user_optimizers(
        {"train": optimizer}, [EVERYTHING], lambda: shapes_of(model, TASK), None
    )
    assert check_learning_rate(specs, {}) == (learning_rate == 1.0)
    tx = optim.optimizer(EVERYTHING, specs, 0.0, optim.schedule("constant", STEPS, 0))

    def init(key):
        return model.init(key, TASK.blank())["params"]

    def apply(params, tokens, positions):
        return model.apply({"params": params}, tokens, positions)

    keys = jax.random.split(jax.random.key(0), 8)
    examples = jax.vmap(TASK.example, in_axes=(0, None))(keys, 0)
    batch = jax.tree.map(lambda leaf: leaf[None], examples)
    state = create(init, EVERYTHING, tx, Population((1,), (learning_rate,)))
    step, result = jax.jit(make_step(apply, TASK, tx)), []
    for _ in range(STEPS):
        state, metrics = step(state, batch)
        result.append(float(metrics["loss"][0]))
    return np.array(result)


def check_losses(name, optimizer, learning_rate):
    loss = losses(optimizer, learning_rate)
    assert loss[-1] < loss[0] - 0.05
    assert loss.max() < loss[0] + 0.1


CASES = {name: (name, optimizer, 1.0) for name, optimizer in COMPLETE.items()}
CASES |= {f"{name} of a rate": (name, optimizer, 5e-3) for name, optimizer in OF_RATE.items()}
QUICK = ("clip and adamw", "lion", "scaled by hand", "sgd", "clip and adam of a rate")


def test_five_kinds_of_optimizers_lower_the_loss():
    assert not failures(check_losses, [CASES[name] for name in QUICK])


@pytest.mark.slow  # each optimizer compiles a program; the five above have every form
def test_every_optimizer_lowers_the_loss():
    assert not failures(check_losses, CASES.values())


class Reached(Exception):
    """Raised where the first step of `train` would begin."""


@pytest.fixture
def setups(monkeypatch):
    """Returns the setup of every call of `train`, none of which trains."""
    result = []

    def stop(phases, *_, **__):
        result.append(phases[0].setup)
        raise Reached

    monkeypatch.setattr(api, "train_phases", stop)
    return result


def call_train(**arguments):
    with pytest.raises(Reached):
        jaxformer.train(TASK, network(), **SHORT | arguments)


def test_a_complete_optimizer_is_used_as_it_is(setups):
    """Its updates equal those of optax, without a clip, a warm-up or another learning rate."""
    given = optax.adamw(optax.cosine_decay_schedule(0.1, 10), weight_decay=0.1)
    call_train(optimizer=given)
    (setup,) = setups
    assert setup.population.rates == (1.0,)
    params = jax.jit(setup.init)(jax.random.key(0))
    gradient = jax.jit(lambda tree: jax.tree.map(lambda leaf: 7.0 * leaf + 1.0, tree))(params)
    state, expected_state = setup.tx.init(params), given.init(params)
    for _ in range(3):
        updates, state = setup.tx.update(gradient, state, params)
        expected, expected_state = given.update(gradient, expected_state, params)
        jax.tree.map(np.testing.assert_array_equal, updates, expected)


def test_a_whole_run_with_a_complete_optimizer_learns():
    run = jaxformer.train(TASK, Table(), optimizer=optax.adamw(1e-2), **SHORT | dict(steps=60))
    assert run.curves["loss"][-1, 0] < run.curves["loss"][0, 0] - 0.3
    # It has a rate of its own, which nobody can read from its functions; it is not 1.
    assert run.config["optim"]["learning_rate"] == ("own",)


def test_the_key_of_own_data_is_recorded():
    """Data of two seeds are two experiments: both were recorded as 'PRNGKeyArray'."""
    source = make_source(TASK, DataSettings(seed=77), 8)
    assert json_fields(source)["key"] == [0, 77]


def test_a_function_of_the_rate_gets_rate_times_schedule():
    """Members of two rates in one program equal optax's own optimizers with their schedules."""
    schedule = optim.schedule("cosine", 10, 4)
    specs = user_optimizers(
        {"train": lambda rate: optax.adamw(rate, weight_decay=0.1)},
        [EVERYTHING],
        lambda: {"w": jax.ShapeDtypeStruct((3,), "float32")},
        None,
    )
    ours = optim.optimizer(EVERYTHING, specs, 0.0, schedule)
    rates = jnp.array([1e-2, 3e-3])

    def trained(rate, optimizer_step, state):
        params = {"w": jnp.array([1.0, -2.0, 3.0])}
        for _ in range(10):
            updates, state = optimizer_step({"w": 2.0 * params["w"]}, state, params, rate)
            params = optax.apply_updates(params, updates)
        return params["w"]

    initial = ours.init({"w": jnp.zeros(3)})
    got = jax.vmap(lambda rate: trained(rate, partial(optim.updates_at_rate, ours), initial))(rates)
    for rate, w in zip(rates, got, strict=True):
        theirs = optax.adamw(lambda step, rate=rate: rate * schedule(step), weight_decay=0.1)
        expected = trained(
            rate, lambda g, state, w, _, tx=theirs: tx.update(g, state, w), theirs.init({"w": w})
        )
        np.testing.assert_allclose(w, expected, rtol=2e-6)


def test_validation_chooses_among_the_rates_of_a_function():
    rates = (1e-2, 1e-6)
    run = jaxformer.train(TASK, Table(), optimizer=optax.adamw, learning_rate=rates, **SHORT)
    good, too_low = run.curves["loss"][-1]  # of the same batch
    assert good < too_low - 0.3
    assert run.config["optim"]["learning_rate"] == rates


def test_an_optimizer_that_goes_uphill_ends_with_a_warning():
    """Nobody asks which way a transformation points; the loss says it."""
    short = SHORT | dict(steps=5)
    run = jaxformer.train(TASK, Table(), optimizer=optax.scale_by_adam(), **short)
    (alarm,) = run.result.alarms
    assert "above the" in alarm and "whose updates go up the gradient" in alarm


REFUSED = [
    (dict(optimizer="adam"), "optimizer must be one such as .*got 'adam'"),
    (dict(optimizer=0.1), "optimizer must be one such as .*got 0.1"),
    (dict(optimizer={"train": None}), "optimizer must be one such as .*got None"),
    (dict(optimizer=lambda rate: rate), r"optimizer\(0.001\) must return an optax .*got 0.001"),
    (dict(optimizer=lambda: optax.sgd(0.1)), "called with a learning rate.*raises TypeError"),
    (
        dict(optimizer=lambda rate: optax.sgd(float(rate))),
        "in a compiled step: ConcretizationTypeError",
    ),
    (
        dict(optimizer=optax.adamw(1e-2), learning_rate=1e-2),
        "has its own learning rate: leave out learning_rate,.*lambda rate: optax.adamw",
    ),
    (
        dict(optimizer=optax.adamw(1e-2), schedule="cosine", warmup=3),
        "leave out schedule, warmup",
    ),
    (dict(optimizer=optax.lbfgs()), "cannot be applied to gradients and parameters alone"),
    (
        dict(
            partition=((".*_norm/.*", "norms"), (".*", "train")),
            optimizer={"norms": optim.SGD(), "train": optax.sgd(0.1)},
        ),
        "'train' has its own learning rate, that of 'norms' takes it from train",
    ),
    (
        dict(optimizer={"train": optax.sgd(0.1), "trian": optax.sgd(0.1)}),
        "no rule has the label 'trian' of an optimizer. Did you mean 'train'",
    ),
    (dict(optimizer_name="mine"), "names an optax optimizer"),
    (dict(optimizer=optax.sgd(0.1), optimizer_name=" "), "must be a text such as"),
]


def test_what_cannot_train_is_refused_in_one_line():
    def check(arguments, message):
        with pytest.raises(UserError, match=message) as error:
            jaxformer.train(TASK, network(), **SHORT | arguments)
        assert "\n" not in str(error.value)

    assert not failures(check, REFUSED)


def test_a_mask_by_path_sees_the_paths_of_the_network():
    def by_path(params):
        return {name: name.startswith("block") for name in params}

    def others(params):
        return {name: not name.startswith("block") for name in params}

    masked = [optax.masked(optax.sgd(0.1), mask) for mask in (by_path, others)]
    loss = losses(optax.chain(*masked), model=network())
    assert loss[-1] < loss[0] - 0.05


def test_a_name_identifies_an_optimizer_in_a_folder(setups, tmp_path, capsys):
    named = dict(workdir=tmp_path, optimizer=optax.adamw(1e-2))
    call_train(**named, optimizer_name="adamw-1e-2")
    (tmp_path / "metrics.jsonl").write_text("")  # a run that has begun
    call_train(**named, optimizer_name="adamw-1e-2")
    assert "has no name" not in capsys.readouterr().err
    with pytest.raises(UserError, match="adamw-2e-2"):
        jaxformer.train(TASK, network(), **SHORT | named, optimizer_name="adamw-2e-2")


def test_an_optimizer_without_a_name_is_compared_by_its_state(setups, tmp_path, capsys):
    call_train(workdir=tmp_path, optimizer=optax.adamw(1e-2))
    (tmp_path / "metrics.jsonl").write_text("")  # a run that has begun
    assert "has no name" not in capsys.readouterr().err
    call_train(workdir=tmp_path, optimizer=optax.adamw(2e-2))
    (warning,) = [line for line in capsys.readouterr().err.splitlines() if "name" in line]
    assert "warning: the optimizer of the label 'train' has no name" in warning
    assert "optimizer_name" in warning
    with pytest.raises(UserError, match="optax:unnamed"):
        jaxformer.train(TASK, network(), workdir=tmp_path, optimizer=optax.sgd(1e-2), **SHORT)
