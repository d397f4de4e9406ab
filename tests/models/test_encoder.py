"""The encoder: addresses, initial variances, equations, a golden number, older checkpoints."""

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxformer
from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.io.checkpoint_reader import read_newest
from jaxformer.io.checkpoint_writer import Checkpoints
from jaxformer.models.encoder import EncoderSpec, encoder
from jaxformer.models.layers import rms_normalise
from jaxformer.models.transformer import TransformerBlock
from jaxformer.tasks.retrieval import Retrieval

REFERENCE = Path(__file__).parents[1] / "reference/encoder_by_head.npz"
PAPER = {"alpha_sa": 0.7, "sigma_v2": 0.2, "sigma_w2": 0.2, "sigma_b2": 4e-4}
VECTORS = {"vocab_size": 0, "length": 8, "layers": 1}


def beta(score_std, length=8):
    """Returns the beta that gives scores this deviation at initialisation."""
    return score_std / np.log(length) ** 0.5


def initial_params(model, inputs, seed=0):
    """Returns initial parameters from one compiled program, which is faster than many."""
    return jax.jit(model.init)(jax.random.key(seed), inputs)["params"]


@pytest.fixture(scope="module")
def small():
    model = encoder(vocab_size=11, length=8, width=16, layers=2, heads=4, beta=beta(0.5), **PAPER)
    tokens_BxT = jnp.arange(16).reshape(2, 8) % 11
    return model, initial_params(model, tokens_BxT), tokens_BxT


def test_a_scan_over_the_blocks_changes_no_address_no_capture_and_no_gradient(small):
    plain, params, tokens_BxT = small
    scanned = type(plain)(replace(plain.spec, scan=True))
    again = initial_params(scanned, tokens_BxT)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), params, again))

    def seen(model):
        def loss(params):
            logits, kept = model.apply({"params": params}, tokens_BxT, mutable=["intermediates"])
            return (logits**2).mean(), kept

        return jax.jit(jax.grad(loss, has_aux=True))(params)

    jax.tree.map(
        partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), seen(plain), seen(scanned)
    )


def test_parameters_and_activations_have_the_stated_addresses(small):
    model, params, tokens_BxT = small
    paths = {
        "/".join(str(k.key) for k in path): leaf.shape
        for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]
    }
    block = {
        "attn/query/kernel": (16, 16),
        "attn/key/kernel": (16, 16),
        "attn/value/kernel": (16, 16),
        "mlp/in/kernel": (16, 16),
        "mlp/in/bias": (16,),
        "mlp/out/kernel": (16, 16),
        "mlp/out/bias": (16,),
    }
    expected = {f"block_{i}/{name}": shape for i in (0, 1) for name, shape in block.items()}
    expected |= {"embed/embedding": (11, 16), "positions/embedding": (8, 16)}
    assert paths == expected | {"unembed/kernel": (16, 11)}
    apply = jax.jit(partial(model.apply, mutable=["intermediates"]))
    captured = apply({"params": params}, tokens_BxT)[1]["intermediates"]["block_1"]
    assert captured["attn"]["weights"].shape == (2, 4, 8, 8)
    assert captured["output"].shape == (2, 8, 16)
    np.testing.assert_allclose(captured["attn"]["weights"].sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose((captured["output"] ** 2).mean(-1), 1, rtol=1e-5)


def test_golden_number(small):
    # A change means other initial draws (names, variances) or other equations, so that earlier
    # records describe a different model.
    model, params, tokens_BxT = small
    logits = jax.jit(model.apply)({"params": params}, tokens_BxT)
    np.testing.assert_allclose(logits[0, 0, :4], GOLDEN, atol=1e-4)


def test_a_block_follows_the_equations():
    x_1xTxN = rms_normalise(jax.random.normal(jax.random.key(1), (1, 5, 12)))
    numbers = {"alpha_sa": 0.7, "alpha_mlp": 1.3, "sigma_w2": 0.3, "sigma_b2": 0.01}
    spec = EncoderSpec(**VECTORS, width=12, heads=3, beta=0.9, **numbers, activation="tanh")
    block = TransformerBlock(spec.block)
    params = initial_params(block, x_1xTxN, 2)
    w = {k: np.asarray(v["kernel"], float) for k, v in params["attn"].items()}
    x = np.asarray(x_1xTxN[0], float)
    normalise = lambda y: y * np.sqrt(12) / np.linalg.norm(y, axis=-1, keepdims=True)  # noqa: E731
    heads = []
    for h in range(3):
        q, k, v = (x @ w[name][:, 4 * h : 4 * h + 4] for name in ("query", "key", "value"))
        a = np.exp(q @ k.T / 2)
        heads.append(a / a.sum(-1, keepdims=True) @ v)
    y = normalise(np.concatenate(heads, -1) + 0.7 * x)
    mlp = {k: {n: np.asarray(p, float) for n, p in v.items()} for k, v in params["mlp"].items()}
    hidden = np.tanh(y @ mlp["in"]["kernel"] + mlp["in"]["bias"])
    y = normalise(hidden @ mlp["out"]["kernel"] + mlp["out"]["bias"] + 1.3 * y)
    np.testing.assert_allclose(jax.jit(block.apply)({"params": params}, x_1xTxN)[0], y, atol=1e-5)


def test_initial_weights_have_their_variances():
    width, x_1xTxN = 512, jnp.ones((1, 2, 512))
    numbers = {"sigma_v2": 0.2, "sigma_w2": 0.3, "sigma_b2": 0.04}
    spec = EncoderSpec(**VECTORS, width=512, heads=8, beta=beta(0.5), **numbers)
    params = initial_params(TransformerBlock(spec.block), x_1xTxN)
    for path, variance in (("query", 0.5), ("key", 0.5), ("value", 0.2)):
        measured = params["attn"][path]["kernel"].var() * width
        assert float(measured) == pytest.approx(variance, rel=0.02)
    for path in ("in", "out"):
        assert float(params["mlp"][path]["kernel"].var() * width) == pytest.approx(0.3, rel=0.02)
        assert float(params["mlp"][path]["bias"].var()) == pytest.approx(0.04, rel=0.3)


def test_vectors_as_inputs_in_half_and_full_precision():
    x_1xTxN = jax.random.normal(jax.random.key(0), (1, 4, 8))
    numbers = {**VECTORS, "width": 8, "heads": 2, "beta": 1.0, "sigma_v2": 1.0, "sigma_w2": 1.0}
    half = encoder(**numbers, dtype=jnp.bfloat16)
    params = initial_params(half, x_1xTxN)
    assert set(params) == {"block_0"}
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(params))
    full = encoder(**numbers)
    apply = jax.jit(full.apply)
    one, two = apply({"params": params}, x_1xTxN), jax.jit(half.apply)({"params": params}, x_1xTxN)
    np.testing.assert_allclose(one, two.astype(jnp.float32), atol=0.1)
    # No positions: a permutation of the tokens permutes the output.
    order = jnp.array([2, 0, 3, 1])
    np.testing.assert_allclose(
        apply({"params": params}, x_1xTxN[:, order]), one[:, order], atol=1e-5
    )


@pytest.mark.slow
def test_a_checkpoint_with_kernels_by_head_is_loaded_and_resumed(tmp_path):
    """Checkpoints were written with (N, H, D) kernels before encoders shared the common block."""
    task = Retrieval(max_pairs=3, vocab=16)
    model = encoder(vocab_size=16, length=task.length, width=16, layers=1, heads=2, beta=1.0)
    train = partial(jaxformer.train, task, model, steps=2, batch_size=8, progress=False)
    expected = train(workdir=tmp_path).params
    checkpoint = read_newest(tmp_path / "ckpt").checkpoint
    assert checkpoint is not None
    by_head = {
        path: leaf.reshape(*leaf.shape[:2], 2, 8)
        if path.endswith(("query/kernel", "key/kernel", "value/kernel"))
        else leaf
        for path, leaf in checkpoint.arrays.items()
    }
    assert sum(leaf.ndim == 4 for leaf in by_head.values()) == 3 * 3  # with Adam's two moments
    shutil.rmtree(tmp_path / "ckpt")
    with Checkpoints(tmp_path / "ckpt") as checkpoints:
        checkpoints.save(checkpoint.step, by_head, checkpoint.note)
    for params in (jaxformer.load(tmp_path)[1], train(workdir=tmp_path).params):
        jax.tree.map(np.testing.assert_array_equal, params, expected)


def test_the_conversion_of_kernels_by_head_keeps_the_function():
    """The stored arrays and logits come from an encoder of the version before."""
    stored = dict(np.load(REFERENCE))
    tokens_BxT, logits = stored.pop("tokens"), stored.pop("logits")
    model = encoder(vocab_size=11, length=8, width=16, layers=2, heads=2, beta=1.0)
    params = paths.unflatten(model.convert_checkpoint(stored))
    member = jax.tree.map(lambda leaf: leaf[0], params)
    assert member["block_1"]["attn"]["query"]["kernel"].shape == (16, 16)
    result = jax.jit(model.apply)({"params": member}, tokens_BxT)
    np.testing.assert_allclose(result, logits, rtol=1e-5, atol=1e-6)


def test_a_sequence_longer_than_the_model_raises_a_one_line_error(small):
    model, params, _ = small
    with pytest.raises(UserError, match="at most 8 tokens, got 9"):
        model.apply({"params": params}, jnp.zeros((1, 9), jnp.int32))


def test_a_spec_is_checked_and_sizes_the_scores():
    sizes = dict(vocab_size=5, length=16, width=8, layers=2, heads=2)
    assert encoder(**sizes, beta=1.5).spec.score_std == pytest.approx(1.5 * np.log(16) ** 0.5)
    for message, wrong in {
        "3 heads do not divide the width 8": dict(heads=3),
        "layers must be at least 1, got 0": dict(layers=0),
        "beta must be finite and at least 0, got -1": dict(beta=-1),
        "sigma_w2 must be finite and at least 0, got inf": dict(sigma_w2=np.inf),
        "Did you mean 'relu'": dict(activation="rellu"),
    }.items():
        with pytest.raises(UserError, match=message):
            encoder(**sizes | dict(beta=1.0) | wrong)


GOLDEN = (0.3851164, 0.69761574, 0.8872545, -0.02374682)
