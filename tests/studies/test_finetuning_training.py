"""The compiled programs of a fine-tuning study train each update as `jaxformer.train` does."""

import jax
import numpy as np
import pytest

import jaxformer
from jaxformer.core import adapters, paths
from jaxformer.core.errors import UserError
from jaxformer.core.settings import DataSettings, TrainSettings
from jaxformer.data import datasets, preparation
from jaxformer.models.pretrained import tiny
from jaxformer.models.pretrained_init import from_params
from jaxformer.studies.finetuning import api
from jaxformer.studies.finetuning.training import Trainer
from jaxformer.studies.finetuning.updates import FULL, Update, updates_of
from jaxformer.tasks.language import NextToken
from jaxformer.training.population import Population

DATA = DataSettings(test_size=6, validation_size=4)
TASK = NextToken(window=16)
LAYERS = {"num_hidden_layers": 3, "attention_bias": True}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "llama"
    tiny.save({**tiny.CONFIGS["llama"], **LAYERS}, folder, vocab=TASK.vocab_size)
    return jaxformer.load(folder)[:2]


@pytest.fixture(scope="module")
def trainer(loaded):
    settings = TrainSettings(batch_size=2, steps=5, members="vmap")
    return Trainer(*loaded, TASK, updates_of(loaded[1], (1, 2)), DATA, settings)


def trained_by_library(loaded, rules, rate):
    model, params = loaded
    return jaxformer.train(
        TASK,
        from_params(model, params),
        rules,
        steps=5,
        batch_size=2,
        seeds=[1],
        learning_rate=rate,
        data=DATA,
        progress=False,
    )


QUICK = "queries and keys, rank 1"  # the others train two more networks each
CASES = {
    "queries and keys, rank 1": (".*/(query|key)/kernel", "lora(1)"),
    "MLP, rank 2": (".*/mlp/.*/kernel", "lora(2)"),
    "norms, full": (r"(.*/)?\w*norm\w*/.*", "train"),
    "biases, full": (".*/bias", "train"),
    "attention, full": (".*/attn/.*", "train"),
    "last third of the blocks, full": ("block_2/.*", "train"),
}


@pytest.mark.parametrize(
    "name",
    [name if name == QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CASES],
)
def test_a_member_equals_the_training_of_the_library_with_this_rule(loaded, trainer, name):
    (update,) = [update for update in trainer.updates if update.name == name]
    tuned = trainer.train(update, 1, 3e-2)
    run = trained_by_library(loaded, (CASES[name], (".*", "frozen")), 3e-2)
    expected = run.result.metrics["bits_per_byte"].mean
    assert np.mean(tuned.test) == pytest.approx(expected, rel=2e-6)
    before = np.mean(trainer.untrained().test)
    assert abs(np.mean(tuned.test) - before) > 1e-3  # it has learnt something
    counted = run.result.parameters
    assert update.trained(loaded[1]) == counted.get("train", 0) + counted.get("lora", 0)


def test_an_update_changes_its_own_part_only(trainer):
    update = next(u for u in trainer.updates if u.name == "values, full")
    program = trainer._program(False)
    member_of = paths.flatten(
        trainer._begin(program, update, Population((0,), (1.0,))).opt_state.is_updated
    )
    assert {path for path, updated in member_of.items() if updated.all()} == {
        f"block_{i}/attn/value/{leaf}" for i in range(3) for leaf in ("kernel", "bias")
    }


def test_updates_have_names_counts_and_thirds(loaded):
    params = loaded[1]
    updates = {update.name: update for update in updates_of(params, (1, 4, 16))}
    assert {"everything, full", "norms, full", "middle third of the blocks, rank 4"} <= set(updates)
    assert "norms, rank 1" not in updates and "values, rank 16" in updates
    size = sum(leaf.size for leaf in paths.flatten(params).values())
    assert updates["everything, full"] == FULL and FULL.trained(params) == size
    values = updates["values, rank 4"]
    assert values.trained(params) == 3 * 4 * (16 + 16)
    assert values.memory(params) == 4 * (size + 384) + 12 * 384
    assert "values, rank 32" not in {u.name for u in updates_of(params, (32,))}


def test_a_part_that_a_model_lacks_is_no_update(loaded):
    without = {path: x for path, x in paths.flatten(loaded[1]).items() if "bias" not in path}
    names = [update.name for update in updates_of(paths.unflatten(without))]
    assert not [name for name in names if name.startswith("biases")]
    assert Update("values", ".*/value/.*").method == "full"


def test_a_model_with_adapters_must_be_merged_first(loaded):
    model, params = loaded
    kernel = "block_0/attn/query/kernel"
    adapted = adapters.add(params, {kernel: adapters.Lora(2)}, jax.random.key(0))
    settings = TrainSettings(batch_size=2, steps=5, members="vmap")
    with pytest.raises(UserError, match=f"leave out the adapter of {kernel}: merge it first"):
        Trainer(model, adapted, TASK, updates_of(params, (1,)), DATA, settings)


def test_a_text_of_another_tokenizer_is_a_one_line_error(tmp_path):
    model = jaxformer.load(tiny.save("llama", tmp_path / "llama", ["Madrid is in Spain"]))[0]
    assert model.spec.vocab_size > TASK.vocab_size  # so that no token is missing
    with pytest.raises(UserError, match="has the tokens of another tokenizer than the model's"):
        api.text_of(model, "", 16)
    text = tmp_path / "text.txt"
    text.write_text("Madrid is in Spain\n" * 200)
    corpus = datasets.corpus(f"text:{text}")
    kind = str(tmp_path / "llama")
    preparation.prepare(corpus, tmp_path / "tokens", kind=kind, shares=(0.1, 0.1))
    assert api.text_of(model, str(tmp_path / "tokens"), 16).vocab_size == model.spec.vocab_size
