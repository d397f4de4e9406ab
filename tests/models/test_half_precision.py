"""Sums of models in half precision. In bfloat16 a sum of ones stops at 256: 256 + 1 is 256."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.models.decoder import decoder
from jaxformer.models.encoder import encoder
from jaxformer.models.layers import embedding
from jaxformer.models.pretrained.network import pretrained
from jaxformer.models.recall import recall

V, T, N = 64, 128, 16
SIZES = dict(vocab_size=V, length=T, width=N)
BLOCKS = dict(layers=1, heads=2)
MODELS = {
    "decoder": (decoder, dict(**BLOCKS, mlp_width=16)),
    "MixiT": (decoder, dict(**BLOCKS, mlp_width=16, mixer="mixit", learned_positions=True)),
    "encoder": (encoder, dict(**BLOCKS, beta=1.0, sigma_b2=0.1)),
    "recall, tied": (recall, dict(feed_forward=("linear",), tie_output=True, embed_std=N**-0.5)),
    "published, tied": (
        pretrained,
        dict(
            **BLOCKS,
            **dict(family="gpt2", kv_heads=2, head_width=8, mlp_width=16, types=1),
            **dict(learned_positions=True, tied=True, qkv_bias=True, out_bias=True, mlp_bias=True),
        ),
    ),
}


def test_a_token_that_occurs_32768_times_has_its_whole_gradient():
    table: Any = embedding(16, 8, "embed", 1.0, dtype=jnp.bfloat16, param_dtype=jnp.float32)
    tokens = jnp.zeros((32, 1024), int)
    params = table.init(jax.random.key(0), tokens)
    gradient = jax.grad(lambda p: table.apply(p, tokens).astype(jnp.float32).sum())(params)
    np.testing.assert_array_equal(gradient["params"]["embedding"][0], 32 * 1024)
    np.testing.assert_array_equal(gradient["params"]["embedding"][1:], 0)


def gradients(name, dtype):
    """Returns a model's gradient on text whose most frequent token makes up one half."""
    make, numbers = MODELS[name]
    model = make(**SIZES, **numbers, dtype=dtype)
    tokens = jnp.minimum(jax.random.geometric(jax.random.key(1), 0.5, (64, T)) - 1, V - 1)
    params = make(**SIZES, **numbers).init(jax.random.key(0), tokens[:1])["params"]

    @jax.jit
    def gradient(params):
        def loss(params):
            logits = model.apply({"params": params}, tokens[:, :-1]).astype(jnp.float32)
            log_p = jax.nn.log_softmax(logits)
            return -jnp.take_along_axis(log_p, tokens[:, 1:, None], -1).mean()

        return jax.grad(loss)(params)

    return gradient(params)


@pytest.mark.parametrize("name", MODELS)
def test_frequent_tokens_have_the_gradient_of_float32(name):
    half, full = gradients(name, jnp.bfloat16), gradients(name, jnp.float32)
    for table in {"embed", "positions", "types"} & full.keys():
        a, b = (np.asarray(tree[table]["embedding"]) for tree in (half, full))
        assert a.dtype == np.float32
        error = np.linalg.norm(a - b) / np.linalg.norm(b)
        assert error < 0.01, (table, error)
