"""Fields of a decoder that change its shapes: MLPs without a gate, wide heads, outputs."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.models import export
from jaxformer.models.classifier import classifier
from jaxformer.models.decoder import decoder
from jaxformer.models.decoder_spec import DecoderSpec
from theory.advise.model_architecture import architecture_of

SIZES = dict(vocab_size=11, length=7, width=8, layers=2, heads=2, mlp_width=16)
INIT = dict(init_std="fan_in", qk_init_std="fan_in", embed_init_std=1.0)
TOKENS = jax.random.randint(jax.random.key(1), (3, 6), 0, 11)
OFF = {"gated": True, "head_width": 0, "outputs": 0}


def initialised(**fields):
    model = decoder(**SIZES, **INIT, **fields)
    return model, jax.jit(model.init)(jax.random.key(0), TOKENS)["params"]


def test_fields_that_are_off_leave_parameters_and_logits_as_they_were():
    defaults = {field.name: field.default for field in dataclasses.fields(DecoderSpec)}
    assert {name: defaults[name] for name in OFF} == OFF
    plain, params = initialised()
    same, again = initialised(gated=True, head_width=4, outputs=11)
    assert paths.flatten(params).keys() == paths.flatten(again).keys()
    for leaf, other in zip(jax.tree.leaves(params), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(leaf, other)
    logits, others = (jax.jit(m.apply)({"params": params}, TOKENS) for m in (plain, same))
    np.testing.assert_array_equal(logits, others)


def test_an_mlp_without_a_gate_is_two_maps_and_an_activation():
    model, params = initialised(gated=False, use_norm=False, act="relu")
    assert set(params["block_0"]["mlp"]) == {"in", "out"}
    logits = jax.jit(model.apply)({"params": params}, TOKENS)
    mlp = params["block_1"]["mlp"]
    without = jax.tree.map(jnp.zeros_like, mlp)
    others = params | {"block_1": params["block_1"] | {"mlp": without}}
    before = jax.jit(model.apply)({"params": others}, TOKENS)
    unembed = params["unembed"]["kernel"]
    states = before @ jnp.linalg.pinv(unembed)
    assert unembed.shape == (8, 11)  # more logits than states, so that states can be read back
    added = jax.nn.relu(states @ mlp["in"]["kernel"]) @ mlp["out"]["kernel"] @ unembed
    np.testing.assert_allclose(logits, before + added, atol=1e-4)
    assert np.abs(added).max() > 0.1


def test_the_width_of_a_head_need_not_divide_the_width():
    model, params = initialised(head_width=5, positions="none")
    shapes = {name: leaf["kernel"].shape for name, leaf in params["block_0"]["attn"].items()}
    assert shapes == {"query": (8, 10), "key": (8, 10), "value": (8, 10), "out": (10, 8)}
    assert model.spec.head_dim == 5
    odd = decoder(**SIZES | {"heads": 3}, head_width=4)  # 3 heads do not divide 8
    assert jax.eval_shape(odd.init, jax.random.key(0), TOKENS)
    scaled = decoder(**SIZES, **INIT, head_width=5, positions="none", score_scale=5**-0.5)
    logits, others = (jax.jit(m.apply)({"params": params}, TOKENS) for m in (model, scaled))
    np.testing.assert_allclose(logits, others, atol=1e-5)


def test_a_cache_continues_a_decoder_of_these_shapes():
    model, params = initialised(gated=False, head_width=6, outputs=2)
    whole = jax.jit(model.apply)({"params": params}, TOKENS)
    _, state = model.apply({"params": params}, TOKENS[:, :4], mutable=["cache"])
    last, _ = model.apply({"params": params, **state}, TOKENS[:, 4:], mutable=["cache"])
    np.testing.assert_allclose(last, whole[:, 4:], atol=1e-5)
    assert whole.shape == (3, 6, 2)


def test_outputs_are_numbers_in_place_of_logits():
    model, params = initialised(outputs=1)
    assert params["unembed"]["kernel"].shape == (8, 1)
    positions = jnp.array([[5], [0], [3]])
    chosen = jax.jit(model.apply)({"params": params}, TOKENS, positions)
    assert chosen.shape == (3, 1, 1)


def test_shapes_that_cannot_be_are_one_line_errors():
    with pytest.raises(UserError, match="even head dimension, got head_width 5"):
        decoder(**SIZES, head_width=5)
    with pytest.raises(UserError, match="head_width must be at least 0"):
        decoder(**SIZES, head_width=-1)
    with pytest.raises(UserError, match="outputs must be at least 0"):
        decoder(**SIZES, outputs=-1)
    with pytest.raises(UserError, match="head_width needs mixer='softmax': the scale"):
        decoder(**SIZES, head_width=6, mixer="mixit")
    with pytest.raises(UserError, match="a classifier has classes instead of outputs"):
        classifier(**SIZES, classes=3, outputs=2)


def test_what_reads_a_spec_knows_the_shapes():
    model, _ = initialised(gated=False, outputs=3)
    with pytest.raises(UserError, match="has an MLP without a gate, and has numbers as outputs"):
        export.check(model)
    wide, _ = initialised(head_width=6)
    assert export.llama_config(wide, None)["head_dim"] == 6
    architecture = architecture_of(decoder(**SIZES, gated=False, head_width=6).spec)
    assert not architecture.gated and architecture.head_width == 6
    assert architecture_of(decoder(**SIZES).spec).gated
