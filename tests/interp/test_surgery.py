"""LASER is the Eckart-Young approximation at the stated rank; dropping zeroes the named parts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer import capture, surgery
from jaxformer.core.errors import UserError
from jaxformer.models.decoder import decoder
from jaxformer.models.encoder import encoder
from jaxformer.models.pretrained import tiny

KEYS = jax.random.split(jax.random.key(0), 2)
PARAMS = {
    "block_0": {"mlp": {"in": {"kernel": jax.random.normal(KEYS[0], (6, 10))}}},
    "bias": jax.random.normal(KEYS[1], (4,)),
}


@pytest.mark.parametrize("fraction, rank", [(0.0, 0), (0.5, 3), (0.34, 2), (1.0, 6)])
def test_laser_keeps_the_leading_singular_values(fraction, rank):
    before = PARAMS["block_0"]["mlp"]["in"]["kernel"]
    after = surgery.laser(PARAMS, "block_0/mlp", fraction)["block_0"]["mlp"]["in"]["kernel"]
    values = np.linalg.svd(before, compute_uv=False)
    kept = np.linalg.svd(after, compute_uv=False)
    np.testing.assert_allclose(kept[:rank], values[:rank], rtol=1e-5)
    np.testing.assert_allclose(kept[rank:], 0, atol=1e-5)
    lost = np.linalg.norm(before - after)
    np.testing.assert_allclose(lost, np.sqrt((values[rank:] ** 2).sum()), atol=2e-5)


def test_rank_of_is_the_floor_in_decimal_arithmetic():
    assert surgery.rank_of(np.zeros((100, 300)), 0.29) == 29
    assert surgery.rank_of(np.zeros((64, 256)), 0.02) == 1


def test_drop_zeroes_only_what_it_names():
    after = surgery.drop(PARAMS, "block_0/mlp")
    assert (np.asarray(after["block_0"]["mlp"]["in"]["kernel"]) == 0).all()
    np.testing.assert_array_equal(after["bias"], PARAMS["bias"])


@pytest.mark.parametrize("name", ["decoder", "encoder", "gpt2"])
def test_ablated_heads_are_those_that_an_intervention_zeroes(name):
    tokens = jnp.arange(10).reshape(2, 5)
    sizes = {"vocab_size": 24, "length": 5, "width": 8, "layers": 2, "heads": 2}
    if name == "gpt2":
        model, params, _ = tiny.tiny("gpt2", 24)
    else:
        made = {"decoder": lambda: decoder(**sizes, mlp_width=16, init_std="fan_in"),
                "encoder": lambda: encoder(**sizes, beta=1.0)}  # fmt: skip
        model = made[name]()
        params = jax.jit(model.init)(jax.random.key(0), tokens)["params"]
    cut = surgery.ablate_heads(params, {"block_1/attn": [1]}, n_heads=2)
    new = {"block_1/attn/heads": capture.at(0.0, heads=1)}

    @jax.jit
    def all_three(cut, params):
        expected = capture.intervene(model, params, tokens, new)
        return (
            model.apply({"params": cut}, tokens),
            expected,
            model.apply({"params": params}, tokens),
        )

    after, expected, before = all_three(cut, params)
    np.testing.assert_allclose(after, expected, atol=1e-5)
    assert np.abs(after - before).max() > 1e-2


def test_wrong_heads_are_one_line_errors():
    params = tiny.tiny("gpt2", 24)[1]
    for heads, n_heads, message in (
        ({"block_2/attn": [0]}, 2, "Did you mean 'block_"),
        ({"block_1/attn": [2]}, 2, "has the heads 0 to 1, got 2"),
        ({"block_1/attn": [0]}, None, "give n_heads=model.spec.heads"),
    ):
        with pytest.raises(UserError, match=message):
            surgery.ablate_heads(params, heads, n_heads)


def test_half_precision_is_decomposed_in_float32():
    matrix = PARAMS["block_0"]["mlp"]["in"]["kernel"].astype(jnp.bfloat16)
    u, s, vt = surgery.decompose(matrix)
    assert s.dtype == jnp.float32
    np.testing.assert_allclose(surgery.recompose(u, s, vt, 6), matrix.astype(float), atol=1e-5)
    for rank in (0, 2):
        expected = surgery.low_rank(matrix, rank).astype(float)
        result = surgery.recompose(u, s, vt, rank).astype(jnp.bfloat16).astype(float)
        np.testing.assert_allclose(result, expected, atol=1e-2)
    tree = {"w": matrix}
    cuts = surgery.truncations(tree, "w", (0.5, 1.0), lambda p: p["w"])
    assert cuts.dtype == jnp.bfloat16
    np.testing.assert_allclose(
        cuts[0].astype(float), surgery.laser(tree, "w", 0.5)["w"].astype(float), atol=1e-2
    )


@pytest.mark.parametrize(
    "pattern, fraction, message",
    [
        ("block_0/mlp", 1.5, r"in \[0, 1\], got 1.5"),
        ("block_0/mlp", (10, 5), r"in \[0, 1\], got \(10, 5\)"),
        ("block_9/mlp", 0.5, "matches no path"),
        ("bias", 0.5, "needs a matrix, 'bias' matches bias of shape"),
    ],
)
def test_wrong_cuts_are_one_line_errors(pattern, fraction, message):
    with pytest.raises(UserError, match=message):
        surgery.laser(PARAMS, pattern, fraction)


def test_a_model_in_place_of_its_parameters_is_a_one_line_error():
    model = encoder(vocab_size=4, length=2, width=8, layers=1, heads=2, beta=1.0)
    with pytest.raises(UserError, match="expected parameters, a nested dict; got Encoder"):
        surgery.laser(model, "block_0/mlp", 0.5)  # type: ignore[arg-type]
