"""Dictionaries by layer are in the order of layers, in models of more than ten blocks."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from jaxformer import capture
from jaxformer.core import paths
from jaxformer.interp import lens, surgery
from jaxformer.models.activation_points import IN_BLOCK
from jaxformer.models.decoder import Decoder, decoder
from jaxformer.models.pretrained import Pretrained, tiny

BLOCKS = [f"block_{i}" for i in range(12)]
TOKENS = jnp.arange(4)[None]
SMALL = decoder(vocab_size=8, length=4, width=4, layers=12, heads=1, mlp_width=4)
LLAMA = Pretrained(replace(tiny.tiny("llama", 24)[0].spec, layers=12))
MODELS = [Decoder(replace(SMALL.spec, scan=True)), LLAMA]


def metric(logits):
    return logits[0, -1, 0]


def traced_keys(function, model):
    """Returns the keys of a dictionary in the order that a traced function sees."""
    keys = []
    params = jax.eval_shape(model.init, jax.random.key(0), TOKENS)["params"]
    jax.eval_shape(lambda p: keys.append(list(function(p))), params)
    return keys[0]


def check_order(keys):
    in_blocks = [key.split("/")[0] for key in keys if key.startswith("block")]
    assert list(dict.fromkeys(in_blocks)) == BLOCKS
    assert in_blocks == sorted(in_blocks, key=BLOCKS.index)


@pytest.mark.parametrize("model", MODELS, ids=["scanned", "pretrained"])
def test_activations_are_in_the_order_of_blocks(model):
    keys = traced_keys(lambda p: capture.capture(model, p, TOKENS, names=[".*"]), model)
    check_order(keys)
    assert keys.index("embedded") < keys.index("block_0/before")
    assert keys.index("block_2/before") < keys.index("block_2/states") < keys.index("final")


def test_results_are_in_the_order_of_blocks():
    check_order(traced_keys(lambda p: lens.logit_lens(SMALL, p, TOKENS), SMALL))
    parts = traced_keys(lambda p: lens.attribution(SMALL, p, TOKENS, metric=metric).parts, SMALL)
    check_order(parts)
    assert parts[0] == "embedded"


def test_matrices_are_in_the_order_of_blocks():
    params = jax.eval_shape(SMALL.init, jax.random.key(0), TOKENS)["params"]
    result = surgery.matrices(params, r"block_\d+/mlp/in")
    assert list(result) == [f"{block}/mlp/in/kernel" for block in BLOCKS]
    assert list(paths.select({"b10": 1, "b2": 2, "a": 3}, ".*")) == ["a", "b2", "b10"]


def test_the_order_that_jit_loses_is_restored():
    ordered = {name: 0 for name in ("embedded", *(f"{block}/states" for block in BLOCKS), "logits")}
    sorted_by_jax = jax.tree.map(lambda x: x, ordered)
    assert list(sorted_by_jax) != list(ordered)
    assert list(capture.in_order(sorted_by_jax)) == list(ordered)
    points = [f"block_3/{name}" for name in (*IN_BLOCK, "probe")]
    assert list(capture.in_order(dict.fromkeys(sorted(points)))) == points
    assert list(capture.in_order({"layers/10/x": 0, "layers/9/x": 0})) == [
        "layers/9/x",
        "layers/10/x",
    ]
