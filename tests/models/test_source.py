"""A model that was loaded is not trained from other weights without a word."""

import copy
import pickle
import subprocess
import sys

import flax.linen as nn
import numpy as np
import pytest

import jaxformer
from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.models.decoder import decoder
from jaxformer.models.decoder_spec import DecoderSpec
from jaxformer.models.pretrained import tiny
from jaxformer.models.pretrained_init import from_params
from jaxformer.models.source import Source, origin, with_source
from jaxformer.tasks.arrays import Arrays
from tests.models import tiny_gguf

SIZES = dict(width=8, layers=1, heads=2, mlp_width=8)
ONE_STEP = dict(steps=1, batch_size=4, progress=False)


def task_for(model):
    """Returns a task of four random tokens that fits the model."""
    vocab = model.spec.vocab_size
    inputs = np.random.default_rng(0).integers(0, vocab, (40, 5))
    return Arrays(inputs, vocab_size=vocab)


class Net(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        return nn.Dense(16)(nn.Embed(16, 8)(tokens))


NET = jaxformer.wrap(Net(), vocab_size=16, length=4)


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    """Returns a function that loads a model of the named kind."""
    root = tmp_path_factory.mktemp("sources")
    models = {"run": decoder(vocab_size=16, length=4, **SIZES), "own run": NET}

    def load(kind):
        folder = root / kind
        if kind in ("toy:induction", "known:copy"):
            return jaxformer.load(kind)
        if kind in models:
            model = models[kind]
            jaxformer.train(task_for(model), model, workdir=folder, **ONE_STEP)
            return jaxformer.load(folder, model=NET if kind == "own run" else None)
        if kind == "gguf":
            folder.mkdir()
            tiny_gguf.write(folder / "model.gguf", "llama")
            return jaxformer.load(folder / "model.gguf")
        return jaxformer.load(tiny.save("gpt2", folder, vocab=24))

    return load


def copies_of(model):
    """Returns the copies that Python and Flax make of a model."""
    copies = [copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    if isinstance(model, nn.Module):
        copies += [model.clone(), model.bind({})]
    return copies


@pytest.mark.parametrize(
    "kind", ["toy:induction", "known:copy", "folder", "gguf", "run", "own run"]
)
def test_training_a_loaded_model_from_new_weights_is_refused(load, kind):
    model, params, _ = load(kind)
    task = task_for(model)
    for loaded in (model, *copies_of(model)):
        with pytest.raises(UserError) as error:
            jaxformer.train(task, loaded, **ONE_STEP)
        message = str(error.value)
        assert "from_scratch=True to draw new ones" in message and "\n" not in message
        assert "params=params" in message and kind.split()[-1] in message
    with pytest.raises(UserError, match="anatomy trains networks from new weights"):
        jaxformer.anatomy(task, model, steps=1, progress=False)
    assert not origin(from_params(model, params))


def test_params_are_the_values_at_step_0(capsys):
    model, params, _ = jaxformer.load("toy:induction")
    rules = (("block_0/.*", "train"), (".*", "frozen"))
    options = ONE_STEP | {"progress": True}
    run = jaxformer.train(task_for(model), model, rules, params=params, **options)
    said = "initial values: given, the same for all seeds (from toy:induction)"
    assert said in capsys.readouterr().out
    before = paths.flatten(params)
    frozen = {path: x for path, x in paths.flatten(run.params).items() if "block_0" not in path}
    assert frozen
    for path, x in frozen.items():
        np.testing.assert_array_equal(x, before[path])


def test_from_scratch_draws_new_weights():
    model, params, _ = jaxformer.load("toy:induction")
    rules = (("block_0/.*", "train"), (".*", "frozen"))
    run = jaxformer.train(task_for(model), model, rules, from_scratch=True, **ONE_STEP)
    drawn = run.params["block_1"]["attn"]["query"]["kernel"]
    assert not np.allclose(drawn, params["block_1"]["attn"]["query"]["kernel"])


def test_params_of_a_model_that_was_built_are_taken_too():
    model = decoder(vocab_size=16, length=4, **SIZES)
    first = jaxformer.train(task_for(model), model, **ONE_STEP)
    rules = (("unembed/.*", "train"), (".*", "frozen"))
    second = jaxformer.train(task_for(model), model, rules, params=first.params, **ONE_STEP)
    np.testing.assert_array_equal(
        second.params["embed"]["embedding"], first.params["embed"]["embedding"]
    )


WIDER = decoder(vocab_size=16, length=4, **SIZES | {"width": 16})
MODEL = decoder(vocab_size=16, length=4, **SIZES)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"params": {"embed": {}}}, "params lack .* of the model"),
        ({"params": 3}, "params must be a tree of parameters, such as run.params; got 3"),
        ({"params": {}, "from_scratch": True}, "not both"),
    ],
)
def test_wrong_initial_values_are_refused_in_one_line(arguments, message):
    with pytest.raises(UserError, match=message) as error:
        jaxformer.train(task_for(MODEL), MODEL, **ONE_STEP, **arguments)
    assert "\n" not in str(error.value)


def test_params_of_another_width_are_refused():
    params = jaxformer.train(task_for(WIDER), WIDER, **ONE_STEP).params
    with pytest.raises(UserError, match=r"of another model: .* has the shape .*16.*model's is"):
        jaxformer.train(task_for(MODEL), MODEL, params=params, **ONE_STEP)


def test_load_returns_three_values_and_the_tokenizer():
    loaded = jaxformer.load("toy:induction")
    assert len(loaded) == 3 and loaded.text.encode("ab") == [0, 1]
    with pytest.raises(UserError, match="knows no tokenizer"):
        _ = jaxformer.load("known:copy").text


def test_a_model_of_the_user_that_was_given_to_load_stays_trainable(load):
    model = load("own run")[0]
    assert origin(model) and not origin(NET) and model.network is NET.network
    jaxformer.train(task_for(NET), NET, **ONE_STEP)


def test_a_loaded_model_equals_one_that_was_built_and_knows_its_tokenizer():
    model, _, config = jaxformer.load("toy:induction")
    assert model == decoder(**config["model"]) and not origin(decoder(**config["model"]))
    assert jaxformer.text(model).encode("ab") == [0, 1]


@pytest.mark.parametrize("kind", ["toy:induction", "folder"])
def test_copies_of_a_loaded_model_know_its_tokenizer(load, kind):
    model = load(kind)[0]
    text = jaxformer.text(model)
    tokens = text.encode("ab") if kind == "toy:induction" else [1, 2]
    for known in copies_of(model):
        assert known == model or isinstance(known, type(model))
        assert jaxformer.text(known).decode(tokens) == text.decode(tokens)
    with_params = from_params(model, {})
    assert jaxformer.text(with_params).decode(tokens) == text.decode(tokens)


PICKLED = """
import pickle, sys
import jaxformer
model = pickle.loads(sys.stdin.buffer.read())
print(jaxformer.text(model).encode("ab"), model.source.name)
"""


def test_a_pickled_model_knows_its_source_in_a_new_process():
    model = jaxformer.load("toy:induction")[0]
    command = [sys.executable, "-c", PICKLED]
    done = subprocess.run(command, input=pickle.dumps(model), capture_output=True, check=True)
    assert done.stdout.decode() == "[0, 1] toy:induction\n"


class Own(nn.Module):
    """A user's module with the form of a model, but without a field for its source."""

    spec: DecoderSpec

    @nn.compact
    def __call__(self, tokens, positions=None):
        return nn.Dense(self.spec.vocab_size)(nn.Embed(self.spec.vocab_size, 8)(tokens))


def test_a_module_of_the_user_keeps_its_source_by_its_spec():
    spec = decoder(vocab_size=16, length=4, **SIZES).spec
    own = Own(spec)
    loaded = with_source(own, Source("runs/own"))
    assert [origin(x) for x in (loaded, *copies_of(loaded))] == ["runs/own"] * 6
    assert not origin(own) and loaded == own
