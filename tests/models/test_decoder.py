"""The decoder: the papers' parameter counts, golden numbers, captures, shorter sequences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.capture import capture, names
from jaxformer.core.errors import UserError
from jaxformer.core.partition import Partition
from jaxformer.core.variants import VARIANTS
from jaxformer.models import attention
from jaxformer.models.activations import shaped_leaky_relu
from jaxformer.models.decoder import decoder

SMALL = dict(vocab_size=11, length=7, width=8, layers=2, heads=2, mlp_width=32)
INIT = dict(init_std="fan_in", qk_init_std="fan_in", embed_init_std=1.0)
MIXERS = {
    "softmax": dict(mixer="softmax"),
    "mixit": dict(mixer="mixit", mixing_scale=0.5, learned_positions=True),
}
TOKENS = jax.random.randint(jax.random.key(1), (3, 6), 0, 11)


@pytest.fixture(scope="module", params=MIXERS)
def built(request):
    model = decoder(**SMALL, **INIT, **MIXERS[request.param])
    return request.param, model, jax.jit(model.init)(jax.random.key(0), TOKENS)["params"]


# Table 4 of the papers (n = 128, L = 2, V = 1024, three tokens): with biases to the unit.
TABLE_4 = {"standard": 790400, "frozen_mlp": 394880, "frozen_qk": 724352, "mixit": 724736}
WITHOUT_BIASES = {"standard": 787072, "frozen_mlp": 393856, "frozen_qk": 721536, "mixit": 721920}


@pytest.mark.parametrize("use_bias, expected", [(True, TABLE_4), (False, WITHOUT_BIASES)])
def test_trainable_parameters_of_table_4(use_bias, expected):
    sizes = dict(vocab_size=1024, length=3, width=128, layers=2, heads=4, mlp_width=512)
    counts = {}
    for variant in expected:
        mixer, rules = VARIANTS[variant]
        fixed = mixer == "mixit"
        model = decoder(**sizes, mixer=mixer, learned_positions=fixed, use_bias=use_bias)
        shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 2), int))["params"]
        counts[variant] = Partition(rules).count(shapes)["train"]
    assert counts == expected


# The loss of a fixed network on fixed tokens. A change means another initialisation or forward
# pass, so that earlier checkpoints and records describe a different model.
GOLDEN = {"softmax": 2.783513, "mixit": 3.136190}


def test_golden_number(built):
    mixer, model, params = built
    logits = jax.jit(model.apply)({"params": params}, TOKENS)
    nats = -jax.nn.log_softmax(logits)[:, :-1]
    loss = jnp.take_along_axis(nats, TOKENS[:, 1:, None], axis=-1).mean()
    np.testing.assert_allclose(loss, GOLDEN[mixer], rtol=1e-4)


@pytest.mark.slow
def test_the_fixed_mixing_of_shorter_sequences_is_centred_again():
    """Rows of a slice would not sum to 1 without a causal mask; the full matrix is unchanged."""
    model = decoder(**SMALL, **MIXERS["mixit"], causal=False)
    params = jax.jit(model.init)(jax.random.key(0), TOKENS)["params"]
    stored = np.asarray(params["block_0"]["attn"]["mix"])
    for length in (4, 7):
        tokens = jnp.ones((1, length), int)
        captured = capture(model, params, tokens, names=["block_0/attn"])
        weights = np.asarray(captured["block_0/attn/weights"])
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
        shift = weights - stored[:, :length, :length]
        np.testing.assert_allclose(shift, shift[..., :1] * np.ones(length), atol=1e-5)
        assert (np.abs(shift).max() > 0.05) == (length == 4)


def test_logits_of_a_shorter_sequence_are_a_slice(built):
    _, model, params = built
    full, shorter = (jax.jit(model.apply)({"params": params}, x) for x in (TOKENS, TOKENS[:, :4]))
    np.testing.assert_allclose(shorter, full[:, :4], atol=2e-6)


def test_captured_attention_weights_sum_to_one_and_are_mixits_matrix(built):
    mixer, model, params = built
    assert "block_1/attn/weights" in names(model, params, TOKENS)
    captured = capture(model, params, TOKENS, names=["block_1/attn/weights", "final"])
    assert set(captured) == {"block_1/attn/weights", "final"}
    np.testing.assert_allclose(captured["block_1/attn/weights"].sum(-1), 1.0, atol=1e-5)
    if mixer == "mixit":
        np.testing.assert_array_equal(
            captured["block_1/attn/weights"], params["block_1"]["attn"]["mix"][:, :6, :6]
        )


def test_remat_and_bfloat16_compute_the_same_function():
    numbers = SMALL | INIT
    plain = decoder(**numbers)
    params = jax.jit(plain.init)(jax.random.key(0), TOKENS)

    def gradient(model):
        return jax.jit(jax.grad(lambda p: jax.nn.logsumexp(model.apply(p, TOKENS)).sum()))(params)

    expected, again = gradient(plain), gradient(decoder(**numbers, remat=True))
    for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    half = jax.jit(decoder(**numbers, dtype=jnp.bfloat16).apply)(params, TOKENS)
    assert half.dtype == jnp.bfloat16
    full = jax.jit(plain.apply)(params, TOKENS)
    error = np.abs(np.asarray(half, float) - np.asarray(full)).max()
    assert 1e-4 < error < 0.1  # rounded, but the same function


def test_sink_head_is_half_on_itself_and_half_on_the_first_token():
    sink = attention.sink_mixing(5)
    np.testing.assert_allclose(sink.sum(-1), [0.5, 1, 1, 1, 1])
    np.testing.assert_allclose(sink[3], [0.5, 0, 0, 0.5, 0])


@pytest.mark.parametrize("identity", [True, False])
def test_a_sink_head_that_sees_all_tokens_keeps_its_rows(identity):
    fields = dict(mixer="mixit", sink_head=True, causal=False, mixing_identity=identity)
    model = decoder(**SMALL, **fields)
    params = jax.jit(model.init)(jax.random.key(0), TOKENS)["params"]
    address, tokens_BxT = "block_0/attn/weights", jnp.where(TOKENS == 0, 1, TOKENS)
    weights_HxTxT = capture(model, params, tokens_BxT, names=[address])[address]
    np.testing.assert_allclose(weights_HxTxT[0], attention.sink_mixing(6), atol=1e-6)
    np.testing.assert_allclose(weights_HxTxT[1].sum(-1), float(identity), atol=1e-5)
    padded = decoder(**SMALL, **fields, pad=0)
    tokens_BxT = tokens_BxT.at[1, 4:].set(0)
    weights_BxHxTxT = capture(padded, params, tokens_BxT, names=[address])[address]
    np.testing.assert_allclose(weights_BxHxTxT[1, 0, :4, :4], attention.sink_mixing(4), atol=1e-6)
    np.testing.assert_allclose(weights_BxHxTxT[1, 1, :, :4].sum(-1), float(identity), atol=1e-5)


def test_shaped_activation_keeps_the_second_moment():
    x = jax.random.normal(jax.random.key(0), (200_000,))
    np.testing.assert_allclose(jnp.mean(shaped_leaky_relu(16)(x) ** 2), 1.0, rtol=0.01)
    np.testing.assert_allclose(shaped_leaky_relu(16)(-1.0) / shaped_leaky_relu(16)(1.0), -0.75)


def test_impossible_fields_raise_one_line_errors():
    cases = [
        (dict(heads=3), "3 heads do not divide the width 8; 2 would"),
        (dict(heads=8), "even head dimension, got width 8 / 8 heads = 1"),
        (dict(mixer="mixt"), "unknown mixer 'mixt'. Did you mean 'mixit'"),
        (dict(act="gelu2"), "unknown activation"),
        (dict(init_std="fanin"), "Did you mean 'fan_in'"),
        (dict(qk_init_std=-1.0), "at least 0, got -1"),
        (dict(layers=0), "layers must be at least 1"),
    ]
    for change, message in cases:
        with pytest.raises(UserError, match=message):
            decoder(**(SMALL | change))


def test_a_sequence_longer_than_the_model_raises_a_one_line_error():
    with pytest.raises(UserError, match="at most 7 tokens, got 8"):
        decoder(**SMALL).init(jax.random.key(0), jnp.zeros((1, 8), int))
