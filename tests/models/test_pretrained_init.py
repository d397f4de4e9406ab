"""Training from given parameters."""

import shutil

import jax
import numpy as np
import pytest

import jaxformer
from experiments.cli import flags
from experiments.run import main as run_config
from jaxformer import build
from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.core.settings import DataSettings
from jaxformer.models.decoder import decoder
from jaxformer.models.pretrained import save_folder, tiny
from jaxformer.models.pretrained_init import from_params, loaded
from jaxformer.tasks.retrieval import Retrieval

TASK = Retrieval(max_pairs=2, vocab=8)


def test_initial_parameters_are_the_given_ones():
    model, params, _ = tiny.tiny("gpt2", 24)
    initial = from_params(model, params).init(jax.random.key(3), None)["params"]
    for path, leaf in paths.flatten(params).items():
        np.testing.assert_array_equal(paths.flatten(initial)[path], leaf)


@pytest.mark.slow  # compiles a training run
def test_frozen_weights_of_a_loaded_model_keep_their_bits():
    """Two rules train the last MLP of a published model."""
    model, params, _ = tiny.tiny("gpt2", TASK.vocab_size)
    rules = (("block_1/mlp/.*", "train"), (".*", "frozen"))
    run = jaxformer.train(
        TASK, from_params(model, params), rules, steps=3, batch_size=8, seeds=2, progress=False
    )
    before = paths.flatten(params)
    for member in (0, 1):
        for path, leaf in paths.flatten(run.member(member)).items():
            is_equal = np.array_equal(leaf, before[path])
            assert is_equal == (not path.startswith("block_1/mlp/")), path
    logits = model.apply({"params": run.params}, np.zeros((1, 4), np.int32))
    assert np.isfinite(logits).all()


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Returns the folder of a published model with the 66 tokens of the packaged chain."""
    return tiny.save("llama", tmp_path_factory.mktemp("published") / "model", vocab=66)


def test_a_folder_that_was_written_again_is_loaded_again(tmp_path):
    folder = tiny.save("llama", tmp_path / "model", vocab=66)
    fields = dict(source=str(folder), vocab_size=66, length=8)
    before = loaded(**fields)
    assert loaded(**fields) is before
    model, params, config = jaxformer.load(folder)
    save_folder(tmp_path / "other", model, jax.tree.map(lambda x: 2 * x, params), config)
    shutil.rmtree(folder)
    shutil.move(tmp_path / "other", folder)
    assert loaded(**fields).fingerprint() != before.fingerprint()


def finetuning(source, **fields):
    config = flags.load_config(f"configs/text/finetune.py:source={source},scale=tiny")
    config.task.update(window=8, **fields)
    return config


@pytest.mark.slow  # compiles a training run
def test_a_config_trains_a_part_of_a_published_model(published, tmp_path):
    flags_ = [f"--config=configs/text/finetune.py:source={published},free=block_1/mlp,scale=tiny"]
    flags_ += ["--config.task.window=8", "--config.train.steps=2", "--config.train.eval_every=1"]
    flags_ += ["--config.train.log_every=1", "--config.data.test_size=4", f"--workdir={tmp_path}"]
    assert run_config(flags_) == 0
    before = paths.flatten(jaxformer.load(published)[1])
    _, params, _ = jaxformer.load(tmp_path)
    for path, leaf in paths.flatten(params).items():
        is_equal = np.array_equal(leaf, before[path])
        assert is_equal == (not path.startswith("block_1/mlp/")), path


def test_a_published_model_starts_a_config(published):
    config = finetuning(published)
    (phase,) = build.phases(config)
    shapes = jax.eval_shape(phase.setup.create)
    assert {path.split("/kernel")[0] for path in paths.flatten(shapes.trainable)} == {
        "block_1/mlp/in", "block_1/mlp/gate", "block_1/mlp/out"
    }  # fmt: skip
    assert jax.tree.leaves(shapes.opt_state)  # moments of the free part only
    moments = [leaf for leaf in jax.tree.leaves(shapes.opt_state) if leaf.ndim > 1]
    assert len(moments) == 2 * len(jax.tree.leaves(shapes.trainable))
    with pytest.raises(UserError, match=r"has 66 tokens and the text 70. .* give task.vocab=66"):
        build.phases(finetuning(published, vocab=70))
    config.model.source = str(published / "no")
    with pytest.raises(UserError):
        build.phases(config)


def test_a_window_longer_than_the_published_model_is_a_one_line_error(published):
    with pytest.raises(UserError, match=r"takes \d+ tokens, task\.window is 10,000\.$"):
        loaded(source=str(published), vocab_size=66, length=10_000)


@pytest.mark.slow  # compiles a training run
def test_a_run_folder_refuses_other_initial_parameters(tmp_path):
    sizes = dict(vocab_size=TASK.vocab_size, length=TASK.length, mlp_width=8)
    model = decoder(width=8, layers=1, heads=2, **sizes)
    one, other = (model.init(jax.random.key(i), TASK.blank())["params"] for i in (0, 1))
    data = DataSettings(test_size=8, validation_size=8)
    options = dict(steps=2, batch_size=4, data=data, workdir=tmp_path, progress=False)
    first = jaxformer.train(TASK, from_params(model, one), **options)
    again = jaxformer.train(TASK, from_params(model, one), **options)
    jax.tree.map(np.testing.assert_array_equal, again.params, first.params)
    with pytest.raises(UserError, match=r"another config: 1 fields differ, such as params"):
        jaxformer.train(TASK, from_params(model, other), **options)


@pytest.mark.slow  # compiles a training run
def test_a_config_trains_adapters_of_a_published_model(published, tmp_path):
    """The command of docs/models.md, with adapters in place of trained modules."""
    config = f"configs/text/finetune.py:source={published},free=.*/(query|value),label=lora(2)"
    flags_ = [f"--config={config},scale=tiny", "--config.task.window=8"]
    flags_ += ["--config.train.steps=2", "--config.train.eval_every=1"]
    flags_ += ["--config.train.log_every=1", "--config.data.test_size=4", f"--workdir={tmp_path}"]
    assert run_config(flags_) == 0
    before = paths.flatten(jaxformer.load(published)[1])
    _, params, _ = jaxformer.load(tmp_path)
    after = paths.flatten(params)
    assert {path: np.array_equal(after[path], leaf) for path, leaf in before.items()} == (
        dict.fromkeys(before, True)
    )
    assert np.abs(after["block_1/attn/value/lora_b"]).max() > 0
    assert sum(path.endswith("lora_a") for path in after) == 4
