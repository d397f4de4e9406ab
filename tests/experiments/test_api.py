"""Training from a notebook uses the engine of the commands, for all tasks and models."""

import dataclasses
import os
import re
import signal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxformer
from jaxformer import api
from jaxformer.core import optim
from jaxformer.core.errors import UserError
from jaxformer.core.settings import DataSettings
from jaxformer.models.decoder import decoder
from jaxformer.models.model import take_positions
from jaxformer.tasks.retrieval import Retrieval
from jaxformer.training import result
from jaxformer.training.arguments import population_of
from jaxformer.training.callbacks import Every
from jaxformer.training.session import Session
from tests.experiments.conftest import TINY

TASK = Retrieval(max_pairs=3, vocab=16)
FROZEN_QK = ((".*/(query|key)/.*", "frozen"), (".*", "train"))
SIZES = DataSettings(test_size=40, validation_size=40, split="hash")  # as the configs say
SHORT = dict(steps=60, batch_size=8, eval_every=20, data=SIZES, learning_rate=1e-2, progress=False)


def model(**changes):
    sizes = dict(vocab_size=TASK.vocab_size, length=TASK.length, width=16, layers=2, heads=4)
    fan_in = dict(init_std="fan_in", qk_init_std="fan_in", embed_init_std=1.0)
    return decoder(**sizes | dict(mlp_width=64) | fan_in | changes)


@pytest.fixture(scope="module")
def run():
    """Returns the run that the command below makes, started from Python."""
    return jaxformer.train(TASK, model(), FROZEN_QK, warmup=50, target=0.99, **SHORT)


def test_a_notebook_and_a_config_train_the_same_network(run, finished):
    params = jaxformer.load(finished)[1]
    assert jax.tree.structure(run.params) == jax.tree.structure(params)
    jax.tree.map(np.testing.assert_array_equal, run.params, params)
    assert "--config.train.steps=60" in TINY  # `finished` is made by this command


def test_training_prints_the_label_of_each_parameter(capsys, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "train_phases", stop)
    with pytest.raises(KeyboardInterrupt):
        jaxformer.train(TASK, model(), FROZEN_QK, **SHORT | {"progress": True})
    printed = capsys.readouterr().out
    assert re.search(r"^block_0\.\.1/attn/key/kernel +16 x 16 +256 +frozen$", printed, re.M)
    assert re.search(r"^unembed/kernel +16 x \d+ +\d+ +train$", printed, re.M)


def test_a_folder_opens_as_the_run_that_made_it(run, finished):
    opened = jaxformer.open(finished)
    assert opened.folder == finished and opened.config["recipe"] == "train" and opened.step == 60
    np.testing.assert_equal(opened.result.metrics, dict(run.result.metrics))
    assert opened.result.baselines == dict(run.result.baselines)
    jax.tree.map(np.testing.assert_array_equal, opened.params, run.params)
    for name, values in run.curves.items():
        np.testing.assert_array_equal(opened.curves[name], values)
    row = next(row for row in opened.rows if row["step"] == 20)
    assert (row["seed"], row["learning_rate"]) == (0, 1e-2)
    assert row["loss"] == opened.curves["loss"][1, 0] and "validation_accuracy" in row
    assert opened.rows == run.rows and len(opened.rows) == 6
    page = opened._repr_html_()
    assert "data:image/png" in page and "baseline in_context_guess" in page
    assert opened.chosen() == [0] and "60 steps" in repr(opened)


def test_a_folder_that_is_no_run_does_not_open(tmp_path):
    with pytest.raises(UserError, match=r"has no config\.json: no run"):
        jaxformer.open(tmp_path)


def test_a_run_knows_what_it_found(run):
    assert run.result.metrics["accuracy"].n == 1 and "in_context_guess" in run.result.baselines
    assert run.result.parameters["frozen"] == 4 * 16 * 16
    curves = run.curves
    assert curves["loss"].shape == (6, 1) and list(curves["step"]) == [10, 20, 30, 40, 50, 60]
    assert curves["validation_accuracy"].shape == (3, 1)
    assert run.plot().axes and "accuracy" in repr(run) and run.folder is None


class Bag(nn.Module):
    """A user's model: the mean embedding of the sequence, at every position."""

    spec: object

    @nn.compact
    def __call__(self, tokens_BxT, positions_BxK=None):
        embedded = nn.Embed(self.spec.vocab_size, 8, name="embed")(tokens_BxT)
        mean_BxTx8 = jnp.broadcast_to(embedded.mean(1, keepdims=True), embedded.shape)
        return nn.Dense(self.spec.vocab_size, name="unembed")(
            take_positions(mean_BxTx8, positions_BxK)
        )


def small():
    """Returns a model that compiles in a fraction of the decoder's time."""
    return Bag(dataclasses.replace(model().spec, causal=False))


@pytest.mark.slow
def test_a_signal_ends_a_script_and_gives_a_notebook_the_stopped_run(tmp_path, monkeypatch, capsys):
    """Returning from `train` after Ctrl-C would start the next `train` of a script."""
    callbacks, sent = Session.callbacks, []

    def stop(state, step):
        if step == 20:
            os.kill(os.getpid(), sent[-1])

    monkeypatch.setattr(Session, "callbacks", lambda self: [Every(20, stop), *callbacks(self)])

    def train(number, folder):
        sent.append(number)
        return jaxformer.train(TASK, model(), FROZEN_QK, workdir=tmp_path / folder, **SHORT)

    with pytest.raises(KeyboardInterrupt):
        train(signal.SIGINT, "ctrl-c")
    assert "step 20 is saved. Run the same command again: it resumes" in capsys.readouterr().out
    assert jaxformer.open(tmp_path / "ctrl-c").step == 20
    with pytest.raises(SystemExit) as exit:
        train(signal.SIGTERM, "kill")
    assert exit.value.code == 128 + signal.SIGTERM
    monkeypatch.setattr(api, "in_notebook", lambda: True)
    stopped = train(signal.SIGINT, "notebook")
    assert stopped.step == 20 and stopped.finished is None


@pytest.mark.slow  # three runs; test_wrap.py and test_user_optimizer.py train both
def test_a_model_and_an_optimizer_of_ones_own_resume_and_load(tmp_path, monkeypatch):
    bag = small()
    rules = (("embed/.*", "slow"), (".*", "train"))
    options = dict(seeds=[3, 5], unfreeze=[(30, ((".*", "train"),))])

    def optimizer():  # made anew, as another process would
        return {"train": lambda rate: optax.adam(rate), "slow": optim.SGD()}

    whole = jaxformer.train(TASK, bag, rules, optimizer=optimizer(), **options, **SHORT)

    folder = dict(workdir=tmp_path, **SHORT)
    callbacks = Session.callbacks
    stop = Every(40, lambda state, step: step == 40 and os.kill(os.getpid(), signal.SIGINT))
    with monkeypatch.context() as patch:
        patch.setattr(Session, "callbacks", lambda self: [stop, *callbacks(self)])
        with pytest.raises(KeyboardInterrupt):
            jaxformer.train(TASK, bag, rules, optimizer=optimizer(), **folder, **options)
    half = jaxformer.open(tmp_path)
    with pytest.raises(UserError, match=r"stopped at step 40 of 60.*names a workdir"):
        _ = half.result
    again = jaxformer.train(TASK, bag, rules, optimizer=optimizer(), **folder, **options)
    assert again.result.seeds == [3, 5]
    jax.tree.map(np.testing.assert_array_equal, again.trained.params, whole.trained.params)

    with pytest.raises(UserError, match=r"'own: Bag', which jaxformer does not have.*model="):
        jaxformer.load(tmp_path)
    loaded, params, _ = jaxformer.load(tmp_path, 1, model=bag)
    jax.tree.map(np.testing.assert_array_equal, params, whole.member(1))
    tokens = jnp.zeros((2, 5), jnp.int32)
    assert jax.jit(loaded.apply)({"params": params}, tokens).shape == (2, 5, 16)


def test_loading_writes_nothing_and_what_it_gives_runs_under_jit(tmp_path):
    mixit = ((".*/mix", "frozen"), (".*", "train"))
    short = SHORT | dict(steps=2)
    mixing = dict(mixer="mixit", layers=1, mlp_width=16)
    run = jaxformer.train(TASK, model(**mixing), mixit, workdir=tmp_path, **short)
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
    loaded, params, config = jaxformer.load(tmp_path)
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")} == before
    sizes = dict(dtype=loaded.spec.dtype, param_dtype=loaded.spec.param_dtype)
    assert config.model.mixer == "mixit" and loaded == model(**mixing, **sizes)
    jax.tree.map(np.testing.assert_array_equal, params, run.params)
    tokens, places = jnp.zeros((2, 7), jnp.int32), jnp.array([[6], [3]])
    everywhere = jax.jit(loaded.apply)({"params": params}, tokens)
    there = jax.jit(loaded.apply)({"params": params}, tokens, places)
    np.testing.assert_allclose(there[0, 0], everywhere[0, 6], rtol=1e-5, atol=1e-6)


def refusal(model, **arguments):
    """Returns the line of the UserError of a call of `train`."""
    with pytest.raises(UserError) as error:
        jaxformer.train(TASK, model, FROZEN_QK, **SHORT | arguments)
    return str(error.value)


def test_wrong_arguments_are_one_line_errors():
    wrong = [
        (model(vocab_size=17), {}, "Retrieval has 16 symbols .* built for 17"),
        (model(length=5), {}, "sequences of up to 9 tokens; the model was built for 16 and 5"),
    ]
    wrong += [
        (model(), arguments, line)
        for arguments, line in [
            (
                dict(evaluate_every=3),
                "train has no argument 'evaluate_every'. Did you mean 'eval_every'",
            ),
            (dict(steps=-1), "^steps must be at least 0, got -1"),
            (dict(steps=2.5), "^steps must be a whole number, got 2.5"),
            (dict(log_every=1.5), "^log_every must be a whole number, got 1.5"),
            (dict(batch_size="8"), "^batch_size must be a number, got '8'"),
            (dict(probes="attention_entropy"), "a sequence of names, got 'attention_entropy'"),
            (dict(unfreeze=[(70, ((".*", "train"),))]), "increase between 0 and steps = 60"),
            (dict(unfreeze=[3]), r"unfreeze must be a sequence of .*, got \[3\]"),
            (dict(data=3), "data must be DataSettings.* got 3 without batch_size, heldout"),
            (dict(optimizer={"slow": optim.SGD()}), "no optimizer for the label 'train'"),
            (dict(labels={}), "train has no argument 'labels'.*It takes also: .'log_every'"),
            (dict(seeds=[0, 0, 0]), r"a seed twice: \[0, 0, 0\]"),
            (dict(seeds=[3, -1]), "seed must be at least 0, got -1"),
            (dict(devices=2), r"must be a DeviceSettings .* got 2"),
            (dict(seeds=1.5), "a number of seeds, or a list of them, got 1.5"),
            (dict(seeds=[0.5]), "seeds must be whole numbers, got 0.5"),
            (dict(seeds=[]), "^seeds must be at least 1, got 0"),
            (dict(learning_rate="fast"), "must be positive numbers, got .'fast'"),
            (dict(learning_rate=[1e-2, 1e-3], eval_every=0), "chooses among .* Give one learning"),
        ]
    ]
    lines = [(refusal(network, **arguments), expected) for network, arguments, expected in wrong]
    bad = [
        (line, expected)
        for line, expected in lines
        if "\n" in line or not re.search(expected, line)
    ]
    assert not bad


def test_wrong_parts_are_one_line_errors():
    small_sizes = dict(width=16, heads=2, mlp_width=32)
    calls = [
        (
            lambda: jaxformer.train(TASK, model(), ((".*", "forzen"),), **SHORT),
            "the label 'forzen' does not freeze. Did you mean 'frozen'",
        ),
        (
            lambda: jaxformer.train(TASK, model(), ".*", **SHORT),
            "the name of a variant .* or rules such as .* got the string",
        ),
        (lambda: jaxformer.train(None, model(), **SHORT), "task must be one .* got None"),
        (
            lambda: decoder(**TASK.sizes, **small_sizes, layer=1),
            "unknown field of DecoderSpec 'layer'. Did you mean 'layers'",
        ),
        (lambda: decoder(**TASK.sizes, **small_sizes), "DecoderSpec needs layers"),
        (lambda: jaxformer.open(None), "open needs the folder of a run, got None"),
        (lambda: jaxformer.load(None), "load needs a folder, a file or a name, got None"),
        (lambda: jaxformer.compare(None, None), "open needs the folder of a run, got None"),
    ]
    for call, expected in calls:
        with pytest.raises(UserError, match=expected) as error:
            call()
        assert "\n" not in str(error.value)


def test_a_misspelt_name_of_the_package_suggests_one():
    with pytest.raises(AttributeError, match="no attribute 'trian'") as error:
        _ = jaxformer.trian
    assert error.value.obj is jaxformer and error.value.name == "trian"


def test_seeds_and_rates_may_be_numbers_of_numpy():
    cases = [
        (np.int64(2), np.float32(0.5), [(0, 0.5), (1, 0.5)]),
        (np.array([4, 2]), np.array([0.5, 0.25]), [(4, 0.5), (2, 0.5), (4, 0.25), (2, 0.25)]),
        (range(2, 4), 1, [(2, 1.0), (3, 1.0)]),
    ]
    for seeds, rates, members in cases:
        population = population_of(seeds, rates)
        assert population.members == members
        assert {(type(seed), type(rate)) for seed, rate in population.members} == {(int, float)}


def test_one_learning_rate_needs_no_validation():
    arguments = SHORT | dict(steps=4, eval_every=0, seeds=2)
    run = jaxformer.train(TASK, small(), **arguments)
    assert run.chosen() == [0, 1] and run.result.metrics["accuracy"].n == 2
    assert run.result.members[0]["validation_accuracy"] is None
    assert "validation_accuracy" not in run.curves


class ByLoss(Retrieval):
    """A task whose learning rate is chosen by the loss, as in text tasks."""

    chosen_by = "loss"


def test_a_member_says_by_which_score_it_was_chosen():
    task = ByLoss(max_pairs=3, vocab=16)
    arguments = SHORT | dict(steps=4, eval_every=2, learning_rate=[1e-2, 1e-6])
    run = jaxformer.train(task, small(), **arguments)
    actual, losses = run.result.members, run.curves["validation_loss"]
    assert [result.validated(one) for one in actual] == [("loss", x) for x in losses[-1]]
    assert actual[0]["chosen"] == (losses[-1][0] < losses[-1][1])
    assert [one["validation_accuracy"] for one in actual] == [
        *run.curves["validation_accuracy"][-1]
    ]


def test_a_run_that_is_stopped_before_its_first_row_has_empty_curves(monkeypatch):
    callbacks = Session.callbacks
    stop = Every(2, lambda state, step: step == 2)
    monkeypatch.setattr(Session, "callbacks", lambda self: [stop, *callbacks(self)])
    run = jaxformer.train(TASK, small(), **SHORT | dict(steps=4, eval_every=4, log_every=4))
    assert run.finished is None and {len(values) for values in run.curves.values()} == {0}
    assert run.chosen() == [0] and run.plot()


def test_what_is_no_network_says_so(tmp_path):
    (tmp_path / "config.json").write_text('{"config": {"recipe": "solve", "figure": {}}}')
    with pytest.raises(UserError, match="'solve', which trains no network"):
        jaxformer.load(tmp_path)
