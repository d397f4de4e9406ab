"""Null models: what is drawn anew, and what stays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxformer
from jaxformer import nulls
from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.core.settings import DataSettings
from jaxformer.models.decoder import decoder
from jaxformer.models.pretrained.tiny import tiny
from jaxformer.tasks.retrieval import Retrieval
from tests.interp.test_circuits import Own
from tests.models.tiny_configs import CONFIGS

TASK = Retrieval(max_pairs=3, vocab=16)
MODEL = decoder(**TASK.sizes, width=32, layers=2, heads=2, mlp_width=64)
TOKENS = np.random.default_rng(0).integers(0, 16, (3, 6))
KEY = jax.random.key(7)


@pytest.fixture(scope="module")
def params():
    return nulls.untrained(MODEL, jax.random.key(0))


def changed(old, new):
    old, new = paths.flatten(old), paths.flatten(new)
    assert old.keys() == new.keys()
    return {path for path in old if (np.asarray(old[path]) != np.asarray(new[path])).any()}


def test_what_matches_is_drawn_with_its_own_mean_and_deviation_and_the_rest_stays(params):
    shifted = jax.tree.map(lambda leaf: 3 * leaf + 1, params)
    drawn = nulls.redraw(shifted, ".*/(query|key)/.*", KEY)
    assert changed(shifted, drawn) == {
        f"block_{i}/attn/{name}/kernel" for i in (0, 1) for name in ("query", "key")
    }
    old, new = (np.asarray(x["block_1"]["attn"]["query"]["kernel"]) for x in (shifted, drawn))
    # A thousand numbers: their mean has an error of 3 %, their deviation one of 2 %.
    assert float(new.mean()) == pytest.approx(float(old.mean()), abs=4 * float(old.std()) / 32)
    assert float(new.std()) == pytest.approx(float(old.std()), rel=0.1)
    assert new.size == 1024
    assert abs(np.corrcoef(old.ravel(), new.ravel())[0, 1]) < 0.15


def test_permuted_weights_keep_every_number(params):
    drawn = nulls.redraw(params, "block_0/mlp", KEY, how="permuted")
    assert changed(params, drawn) >= {"block_0/mlp/in/kernel", "block_0/mlp/out/kernel"}
    for path in changed(params, drawn):
        old, new = paths.flatten(params)[path], paths.flatten(drawn)[path]
        np.testing.assert_array_equal(np.sort(old.ravel()), np.sort(new.ravel()))


def test_a_draw_belongs_to_its_key_and_address(params):
    alone = nulls.redraw(params, "block_0/attn/query", KEY)["block_0"]["attn"]["query"]["kernel"]
    together = nulls.redraw(params, ".*", KEY)["block_0"]["attn"]["query"]["kernel"]
    np.testing.assert_array_equal(alone, together)
    other = nulls.redraw(params, ".*", jax.random.key(8))["block_0"]["attn"]["query"]["kernel"]
    assert (alone != other).all()
    second = nulls.redraw(params, ".*", KEY)["block_1"]["attn"]["query"]["kernel"]
    assert (alone != second).all()


def test_the_default_null_has_all_block_weights_and_no_other(params):
    pattern = nulls.blocks(params)
    drawn = nulls.redraw(params, pattern, KEY)
    kernels = {path for path in paths.flatten(params) if path.endswith("kernel")}
    assert changed(params, drawn) >= {path for path in kernels if path.startswith("block_")}
    assert all(path.startswith("block_") for path in changed(params, drawn))


def test_a_published_model_and_a_module_of_a_user_have_nulls_by_the_same_addresses():
    model, params, _ = tiny(CONFIGS["llama"], 11)
    drawn = nulls.redraw(params, ".*/(query|key)/.*", KEY)
    assert {path.split("/")[-2] for path in changed(params, drawn)} == {"query", "key"}
    fresh = nulls.untrained(model, KEY)
    assert changed(params, fresh) >= {path for path in paths.flatten(params) if "kernel" in path}
    own = jaxformer.wrap(Own(), vocab_size=11, length=6)
    params = nulls.untrained(own, KEY)
    drawn = nulls.redraw(params, nulls.blocks(params), KEY)  # no address names a block
    assert {"mlp_0/Dense_0/kernel", "mlp_1/Dense_0/kernel"} < changed(params, drawn)


def test_an_untrained_network_is_that_of_a_run_without_steps(params):
    del params
    options = {"batch_size": 8, "progress": False, "data": DataSettings(split="hash")}
    run = jaxformer.train(TASK, MODEL, "standard", steps=0, seeds=[3], **options)
    drawn = nulls.untrained(MODEL, jax.random.key(3))
    assert paths.flatten(drawn).keys() == paths.flatten(run.params).keys()
    for name, leaf in paths.flatten(drawn).items():
        expected = float(paths.flatten(run.params)[name].std())
        assert float(leaf.std()) == pytest.approx(expected, rel=0.3, abs=1e-6)


def test_a_frozen_network_is_trained_except_for_its_frozen_parts():
    options = {"batch_size": 8, "data": DataSettings(split="hash"), "seeds": [3]}
    before = jaxformer.train(TASK, MODEL, steps=0, progress=False, **options).params
    run = nulls.frozen(TASK, "frozen_qk", model=MODEL, steps=2, **options)
    stayed = paths.flatten(before).keys() - changed(before, run.params)
    trained_norms = {path for path in stayed if path.split("/")[-2] not in ("query", "key")}
    assert {path for path in stayed if "query" in path or "key" in path} == {
        path for path in paths.flatten(before) if "/query/" in path or "/key/" in path
    }
    assert not trained_norms
    with pytest.raises(UserError, match="freeze nothing, so the network would be no null"):
        nulls.frozen(TASK, ((".*", "train"),), model=MODEL, steps=2)


def test_shuffled_labels_keep_the_classes_and_lose_the_examples():
    labels = np.random.default_rng(0).integers(0, 4, 400)
    shuffled = nulls.shuffled_labels(labels, KEY)
    np.testing.assert_array_equal(np.bincount(labels), np.bincount(shuffled))
    assert 0.15 < (labels == shuffled).mean() < 0.35
    with pytest.raises(UserError, match="labels of one class say nothing"):
        nulls.shuffled_labels(np.ones(9), KEY)


@pytest.mark.parametrize("name", ["decoder", "gemma2"])
def test_random_mixing_does_not_see_the_tokens_and_averages_what_a_head_sees(name, params):
    model, own = MODEL, params
    if name != "decoder":
        model, own, _ = tiny(CONFIGS[name], 16)
    edits = nulls.random_mixing(model, own, TOKENS, KEY)
    addresses = [x for x in jaxformer.capture.names(model, own) if x.endswith("attn/weights")]
    assert [*edits] == addresses
    first, second = (edits[address] for address in addresses[:2])
    np.testing.assert_allclose(first.sum(-1), 1, rtol=1e-5)
    assert (first[0] == first[1]).all() and (first != second).any()
    assert (jnp.triu(first, 1) == 0).all() and (first[:, :, -1] > 0).all()
    # The mixing is what the run has: with it, exchanged tokens change nothing in the weights.
    captured = jaxformer.capture.run(model, own, TOKENS, names=[addresses[0]], edits=edits)[1]
    np.testing.assert_allclose(captured[addresses[0]], first, rtol=1e-5)


def test_bad_input_is_one_line(params):
    with pytest.raises(UserError, match=r"'block_7/.*' matches no path"):
        nulls.redraw(params, "block_7/.*", KEY)
    with pytest.raises(UserError, match="Did you mean 'permuted'"):
        nulls.redraw(params, ".*", KEY, how="permutd")
    broken = paths.replace(params, {"block_0/mlp/in/kernel": jnp.full((32, 64), jnp.nan)})
    with pytest.raises(UserError, match="block_0/mlp/in/kernel has numbers that are not finite"):
        nulls.redraw(broken, ".*", KEY)
    with pytest.raises(UserError, match="matches no"):
        nulls.random_mixing(MODEL, params, TOKENS, KEY, pattern="block_9/attn/weights")
