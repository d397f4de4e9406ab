"""The encoder: addresses, initial variances, the equation, one golden number."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.errors import UserError
from jaxformer.models.encoder import Encoder, EncoderBlock, rms_normalise

PAPER = {"alpha_sa": 0.7, "value_variance": 0.2, "weight_variance": 0.2, "bias_variance": 4e-4}


@pytest.fixture(scope="module")
def small():
    model = Encoder(2, 16, 4, 8, vocab_size=11, score_std=0.5, **PAPER)
    tokens_BxT = jnp.arange(16).reshape(2, 8) % 11
    return model, model.init(jax.random.key(0), tokens_BxT)["params"], tokens_BxT


def test_addresses(small):
    model, params, tokens_BxT = small
    paths = {
        "/".join(str(k.key) for k in path): leaf.shape
        for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]
    }
    block = {
        "attn/query/kernel": (16, 4, 4),
        "attn/key/kernel": (16, 4, 4),
        "attn/value/kernel": (16, 4, 4),
        "mlp/in/kernel": (16, 16),
        "mlp/in/bias": (16,),
        "mlp/out/kernel": (16, 16),
        "mlp/out/bias": (16,),
    }
    expected = {f"block_{i}/{name}": shape for i in (0, 1) for name, shape in block.items()}
    expected |= {"embed/embedding": (11, 16), "positions/embedding": (8, 16)}
    assert paths == expected | {"unembed/kernel": (16, 11)}
    _, state = model.apply({"params": params}, tokens_BxT, mutable=["intermediates"])
    captured = state["intermediates"]["block_1"]
    assert captured["attn"]["weights"].shape == (2, 4, 8, 8)
    assert captured["output"].shape == (2, 8, 16)
    np.testing.assert_allclose(captured["attn"]["weights"].sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose((captured["output"] ** 2).mean(-1), 1, rtol=1e-5)


def test_golden_number(small):
    # A change means other initial draws (names, order of submodules, variances) or other equations:
    # records made before it cannot be compared with records made after it.
    model, params, tokens_BxT = small
    logits = model.apply({"params": params}, tokens_BxT)
    np.testing.assert_allclose(logits[0, 0, :4], GOLDEN, atol=1e-4)


def test_the_equation():
    x_1xTxN = rms_normalise(jax.random.normal(jax.random.key(1), (1, 5, 12)))
    block = EncoderBlock(3, 0.7, 1.3, 0.9, 0.2, 0.3, 0.01, "tanh")
    params = block.init(jax.random.key(2), x_1xTxN)["params"]
    w = {k: np.asarray(v["kernel"], float) for k, v in params["attn"].items()}
    x = np.asarray(x_1xTxN[0], float)
    normalise = lambda y: y * np.sqrt(12) / np.linalg.norm(y, axis=-1, keepdims=True)  # noqa: E731
    heads = []
    for h in range(3):
        q, k, v = (x @ w[name][:, h] for name in ("query", "key", "value"))
        a = np.exp(q @ k.T / 2)
        heads.append(a / a.sum(-1, keepdims=True) @ v)
    y = normalise(np.concatenate(heads, -1) + 0.7 * x)
    mlp = {k: {n: np.asarray(p, float) for n, p in v.items()} for k, v in params["mlp"].items()}
    hidden = np.tanh(y @ mlp["in"]["kernel"] + mlp["in"]["bias"])
    y = normalise(hidden @ mlp["out"]["kernel"] + mlp["out"]["bias"] + 1.3 * y)
    np.testing.assert_allclose(block.apply({"params": params}, x_1xTxN)[0], y, atol=1e-5)


def test_initial_variances():
    width, x_1xTxN = 512, jnp.ones((1, 2, 512))
    params = EncoderBlock(8, 1.0, 1.0, 0.5, 0.2, 0.3, 0.04).init(jax.random.key(0), x_1xTxN)
    params = params["params"]
    for path, variance in (("query", 0.5), ("key", 0.5), ("value", 0.2)):
        measured = params["attn"][path]["kernel"].var() * width
        assert float(measured) == pytest.approx(variance, rel=0.02)
    for path in ("in", "out"):
        assert float(params["mlp"][path]["kernel"].var() * width) == pytest.approx(0.3, rel=0.02)
        assert float(params["mlp"][path]["bias"].var()) == pytest.approx(0.04, rel=0.3)


def test_vectors_and_dtypes():
    x_1xTxN = jax.random.normal(jax.random.key(0), (1, 4, 8))
    half = Encoder(1, 8, 2, 4, dtype=jnp.bfloat16)
    params = half.init(jax.random.key(0), x_1xTxN)["params"]
    assert set(params) == {"block_0"}
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(params))
    full = Encoder(1, 8, 2, 4)
    one, two = (m.apply({"params": params}, x_1xTxN) for m in (full, half))
    np.testing.assert_allclose(one, two.astype(jnp.float32), atol=0.1)
    # No positions: a permutation of the tokens permutes the output.
    order = jnp.array([2, 0, 3, 1])
    np.testing.assert_allclose(
        full.apply({"params": params}, x_1xTxN[:, order]), one[:, order], atol=1e-5
    )


def test_bad_input(small):
    model, params, _ = small
    with pytest.raises(UserError, match="at most 8 tokens, got 9"):
        model.apply({"params": params}, jnp.zeros((1, 9), jnp.int32))
    with pytest.raises(UserError, match="multiple of the heads"):
        Encoder(1, 10, 4, 4).init(jax.random.key(0), jnp.ones((1, 4, 10)))
    with pytest.raises(UserError, match="Did you mean 'tanh'"):
        Encoder(1, 8, 4, 4, activation="tahn").init(jax.random.key(0), jnp.ones((1, 4, 8)))


GOLDEN = (0.3851164, 0.69761574, 0.8872545, -0.02374682)
