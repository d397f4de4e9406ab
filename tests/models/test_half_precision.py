"""Sums of models in half precision. In bfloat16 a sum of ones stops at 256: 256 + 1 is 256."""

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.core import paths
from jaxformer.models.decoder import decoder
from jaxformer.models.encoder import encoder
from jaxformer.models.half_precision import matrix_product, wide
from jaxformer.models.layers import embedding
from jaxformer.models.pretrained.network import pretrained
from jaxformer.models.recall import recall
from jaxformer.training.cost import flops
from tests.core.test_sharding import on_eight_devices

V, T, N = 64, 128, 16
SIZES = dict(vocab_size=V, length=T, width=N)
BLOCKS = dict(layers=1, heads=2)
MODELS = {
    "decoder": (decoder, dict(**BLOCKS, mlp_width=16, use_bias=True)),
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


def test_a_cpu_sums_along_the_last_axis_of_the_first_factor():
    """XLA computes other products of bfloat16 in float32 there, at half of the speed."""
    x, w = jnp.ones((6, 4), jnp.bfloat16), jnp.ones((4, 8))
    back = jax.jit(jax.grad(lambda *xw: wide(matrix_product(*xw)).sum(), (0, 1)))
    text = back.trace(x, w).lower(lowering_platforms=("cpu",)).as_text()
    summed = re.findall(r"contracting_dims = \[(\d)\]", text)
    assert len(summed) >= 2 and set(summed) == {"1"}, text
    np.testing.assert_array_equal(back(x, w)[1], 6.0)


def parts(name, dtype):
    """Returns a model, its parameters, and text whose most frequent token makes up one half."""
    make, numbers = MODELS[name]
    tokens = jnp.minimum(jax.random.geometric(jax.random.key(1), 0.5, (64, T)) - 1, V - 1)
    params = make(**SIZES, **numbers).init(jax.random.key(0), tokens[:1])["params"]
    return make(**SIZES, **numbers, dtype=dtype), params, tokens


def loss_of(model, params, tokens):
    logits = model.apply({"params": params}, tokens).astype(jnp.float32)
    log_p = jax.nn.log_softmax(logits[:, :-1])
    return -jnp.take_along_axis(log_p, tokens[:, 1:, None], -1).mean()


@functools.cache
def gradient_of(name, dtype):
    model, params, tokens = parts(name, dtype)
    return jax.jit(jax.grad(lambda p: loss_of(model, p, tokens)))(params)


@pytest.mark.parametrize("name", MODELS)
def test_frequent_tokens_have_the_gradient_of_float32(name):
    half, full = gradient_of(name, jnp.bfloat16), gradient_of(name, jnp.float32)
    for table in {"embed", "positions", "types"} & full.keys():
        a, b = (np.asarray(tree[table]["embedding"]) for tree in (half, full))
        error = np.linalg.norm(a - b) / np.linalg.norm(b)
        assert error < 0.01, (table, error)


@pytest.mark.parametrize("name", MODELS)
def test_the_gradient_of_a_parameter_is_not_rounded(name):
    """A sum in bfloat16, or one that is rounded before devices add theirs, has zeros at its end."""
    for path, leaf in paths.flatten(gradient_of(name, jnp.bfloat16)).items():
        is_rounded = leaf == leaf.astype(jnp.bfloat16)
        is_seen = leaf != 0  # rows of absent tokens, and the mixing of later tokens, have none
        assert (is_rounded & is_seen).sum() < 0.1 * is_seen.sum() + 1, path


def sums(program):
    """Iterates over the sums of a jaxpr and of its inner jaxprs."""
    for step in program.eqns:
        if step.primitive.name in ("reduce_sum", "scatter-add", "cumsum", "reduce_window_sum"):
            yield step
        for inner in flops.inner_programs(step):
            yield from sums(inner)


@pytest.mark.parametrize("name", MODELS)
def test_no_sum_of_a_training_step_has_half_precision(name):
    """A CPU adds bfloat16 in float32, others need not: only the program shows the precision."""
    model, params, tokens = parts(name, jnp.bfloat16)
    step = jax.jit(jax.grad(lambda p: loss_of(model, p, tokens))).trace(params)
    found = [*sums(step.jaxpr.jaxpr)]
    assert len(found) > 5
    for addition in found:
        terms = addition.invars[-1].aval.size / addition.outvars[0].aval.size
        is_short = addition.primitive.name == "reduce_sum" and terms <= 8  # heads share keys
        assert is_short or addition.outvars[0].aval.dtype.itemsize >= 4, addition


ON_EIGHT_DEVICES = """
import json
import flax.linen as nn, jax, jax.numpy as jnp, numpy as np
from jaxformer.core import paths, sharding
from jaxformer.core.layouts import shard_activation
from jaxformer.models import layers

class Net(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        types = dict(dtype=jnp.bfloat16, param_dtype=jnp.float32)
        h = shard_activation(layers.embedding(16, 32, "embed", 1.0, **types)(tokens))
        return layers.dense(32, "unembed", 1.0, use_bias=True, **types)(h)

def loss(params, tokens):
    return Net().apply({"params": params}, tokens).astype(jnp.float32).sum()

# Each device adds 257 equal terms, which bfloat16 rounds to 256.
tokens = jnp.zeros((8, 257), int)
params = jax.tree.map(jnp.ones_like, Net().init(jax.random.key(0), tokens)["params"])
params["unembed"]["kernel"] /= 32
out = {}
for axis in ("data", "fsdp"):
    mesh = sharding.make_mesh(**{"data": 1, axis: 8})
    place = lambda path, x: sharding.parameter_sharding(path, x.shape, mesh)
    layout = paths.map_with_path(place, params)
    on_mesh = (
        jax.device_put(params, layout),
        jax.device_put(tokens, jax.NamedSharding(mesh, jax.P(sharding.BATCH_AXES))),
    )
    lowered = jax.jit(jax.grad(loss), out_shardings=layout).lower(*on_mesh)
    gradient = paths.flatten(lowered.compile()(*on_mesh))
    out[axis] = {
        "gradient": {path: np.unique(x).tolist() for path, x in gradient.items()},
        "constraints": [s for s in lowered.as_text().splitlines() if "sharding_constraint" in s],
    }
print("RESULT" + json.dumps(out))
"""


def test_devices_add_gradients_in_float32_but_gather_a_rounded_table():
    for found in on_eight_devices(ON_EIGHT_DEVICES).values():
        assert found["gradient"] == {
            "embed/embedding": [0, 8 * 257],  # one token occurs
            "unembed/bias": [8 * 257],
            "unembed/kernel": [8 * 257],
        }
        assert any("tensor<16x32xbf16>" in line for line in found["constraints"])
