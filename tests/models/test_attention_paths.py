"""The attention-path network: by tokens and by paths, initial weights, addresses."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.core.errors import UserError
from jaxformer.models.attention_paths import (
    AttentionPathsSpec,
    ScaledKernel,
    attention_paths,
    path_products,
)


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def build(**kwargs):
    defaults = {"heads": (3, 2), "width": (5, 7, 4), "query_width": 3, "param_dtype": jnp.float64}
    model = attention_paths(**(defaults | kwargs))
    tokens = np.random.default_rng(1).standard_normal((4, 6, 8))
    shapes = jax.eval_shape(model.init, jax.random.key(0), tokens)
    rng = np.random.default_rng(2)  # NumPy draws: nothing to compile
    return model, jax.tree.map(lambda leaf: rng.standard_normal(leaf.shape), shapes), tokens


def run(model, params, *args, method="__call__", **kwargs):
    out = jax.jit(functools.partial(model.apply, method=method))(params, *args, **kwargs)
    return jax.tree.map(np.asarray, out)


@pytest.mark.parametrize(
    ("readout", "parameterization"), [("first", "prior"), ("last", "standard"), ("mean", "prior")]
)
def test_f_by_paths_equals_f_by_tokens(readout, parameterization):
    model, params, tokens = build(readout=readout, parameterization=parameterization)
    xi = run(model, params, tokens, method="attentioned_input")
    assert xi.shape == (4, 6, 8)
    by_paths = run(model, params, xi, method="from_attentioned")
    np.testing.assert_allclose(by_paths, run(model, params, tokens), rtol=0, atol=1e-12)


def test_attentioned_input_is_the_sum_over_token_sequences():
    model, params, tokens = build()
    first, second = run(model, params, tokens, method="maps")
    xi = run(model, params, tokens, method="attentioned_input")
    expected = np.einsum("bsn,bhst,bktu->bhkn", tokens, first, second)  # h_1 slowest
    np.testing.assert_allclose(xi, expected.reshape(4, 6, 8), atol=1e-13)
    np.testing.assert_allclose(first.sum(2), 1, atol=1e-13)


def test_the_network_follows_the_equations():
    """The equations of the docstring, term by term, from the raw parameters."""
    model, variables, tokens = build(heads=(2,), width=(5, 7))
    p = variables["params"]
    attn, n = p["block_0"]["attn"], tokens.shape[-1]
    query, key = (
        np.einsum("btn,nhg->bhtg", tokens, attn[name]["kernel"]) / n**0.5
        for name in ("query", "key")
    )
    scores = np.exp(np.einsum("bhsg,bhtg->bhst", key, query) / 3**0.5)
    omega = scores / scores.sum(2, keepdims=True)
    z = tokens @ p["embed"]["kernel"] / n**0.5
    z = np.einsum("bsi,bhst,iho->bto", z, omega, attn["value"]["kernel"]) / (5 * 2) ** 0.5
    f = z[:, -1] @ p["readout"]["kernel"] / 7**0.5
    np.testing.assert_allclose(run(model, variables, tokens), f, atol=1e-13)


def test_path_products_give_the_order_parameter():
    """U is the Gram matrix of v^(1) / sqrt(N_1), with v^(1) = products / sqrt(N_2 N_3)."""
    model, variables, _ = build()
    p = variables["params"]
    values = [p[f"block_{i}"]["attn"]["value"]["kernel"] for i in range(2)]
    v_DxN = path_products(p["readout"]["kernel"], values) / (7 * 4) ** 0.5
    ours, weights = jax.jit(lambda p: model.apply(p, 8, method="path_weights"))(variables)
    np.testing.assert_allclose(ours, v_DxN / 5**0.5, atol=1e-13)
    np.testing.assert_allclose(weights, v_DxN @ p["embed"]["kernel"].T / 5**0.5, atol=1e-13)


def test_fixed_maps_need_no_queries_and_modules_have_addresses():
    model, params, tokens = build()
    maps = run(model, params, tokens, method="maps")
    fixed = jax.eval_shape(model.init, jax.random.key(0), tokens, maps=maps)
    names = {
        "/".join(k.key for k in path) for path, _ in jax.tree.leaves_with_path(fixed["params"])
    }
    values = {f"block_{i}/attn/value/kernel" for i in range(2)}
    assert names == {"embed/kernel", "readout/kernel"} | values
    learned = {f"block_{i}/attn/{x}/kernel" for i in range(2) for x in ("query", "key")}
    names = {
        "/".join(k.key for k in path) for path, _ in jax.tree.leaves_with_path(params["params"])
    }
    assert names == {"embed/kernel", "readout/kernel"} | values | learned


def test_a_dropped_head_rescales_the_sum():
    model, params, tokens = build(heads=(3,), width=(5, 7))
    maps = run(model, params, tokens, method="maps")
    pruned = run(model, params, tokens, maps=maps, kept=[np.array([1.0, 0.0, 1.0])])
    small = attention_paths(heads=(2,), width=(5, 7), query_width=3)
    keep = np.array([0, 2])
    value = params["params"]["block_0"]["attn"]["value"]["kernel"][:, keep]
    kept = dict(params["params"], block_0={"attn": {"value": {"kernel": value}}})
    expected = run(small, {"params": kept}, tokens, maps=[maps[0][:, keep]])
    np.testing.assert_allclose(pruned, expected, atol=1e-13)


def test_initial_weights_have_the_stated_variance():
    """ "prior" is N(0, 1), "standard" is U(-1, 1) / sqrt(fan-in), PyTorch's linear layer."""
    for parameterization, std in (("prior", 1.0), ("standard", 1 / (3 * 40) ** 0.5)):
        spec = AttentionPathsSpec((3,), 50, parameterization=parameterization)
        module = ScaledKernel(spec, (3, 50))
        params = jax.jit(module.init, static_argnums=1)(jax.random.key(0), 40)["params"]
        value = np.asarray(params["kernel"])
        assert value.shape == (40, 3, 50) and abs(value.std() / std - 1) < 0.03
        assert (np.abs(value).max() <= 1 / 40**0.5) == (parameterization == "standard")


def test_impossible_fields_and_inputs_raise_one_line_errors():
    with pytest.raises(UserError, match=r"a number for each layer, such as \(2, 2\), got 2"):
        build(heads=2)
    with pytest.raises(UserError, match="3 hidden widths"):
        build(width=(5, 7))
    with pytest.raises(UserError, match="standard"):
        build(parameterization="standart")
    with pytest.raises(UserError, match="first"):
        build(readout="frist")
    with pytest.raises(UserError, match="must have vocab_size 0, got 16"):
        build(vocab_size=16, length=9)
    with pytest.raises(UserError, match="need causal=False, got causal=True"):
        build(causal=True)
    model, params, tokens = build()
    with pytest.raises(UserError, match=r"positions must be None, got the shape \(4, 1\)"):
        model.apply(params, tokens, np.zeros((4, 1), int))


# The output on NumPy's draws. If it changes, the forward pass changed: theory and network may no
# longer be the same function. Change it knowingly.
GOLDEN = 0.656107


def test_golden_number():
    model, params, tokens = build()
    np.testing.assert_allclose(np.abs(run(model, params, tokens)).mean(), GOLDEN, rtol=1e-4)
