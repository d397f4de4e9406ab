"""Random transformers of each family: the gap to the theory shrinks with width."""

import jax
import numpy as np
import pytest

from tests.theory.test_architectures import network as network_of
from theory.signal.backward import backward
from theory.signal.measurement import measure
from theory.signal.recursion import forward

T = 16
# Strong weights, so that a few layers of a narrow network show everything.
SHARED = {"layers": 4, "std": 1.0, "std_embed": 1.0, "std_position": 0.5}
KINDS = {
    "bert": {"std_type": 0.7, "embed_norm": True},
    "gpt2": {"pre_norm": True, "causal": True, "activation": "gelu_tanh"},
    "llama": {
        "pre_norm": True,
        "causal": True,
        "gated": True,
        "activation": "silu",
        "norm": "rms",
        "rotary": 1.0,
        "kv_heads": 2,
    },
    "vit": {"pre_norm": True},
    "pythia": {"pre_norm": True, "causal": True, "parallel": True, "rotary": 0.25},
    "t5": {"pre_norm": True, "norm": "rms", "activation": "relu"},
}


def network(kind, width):
    """Returns weights of variance 1/fan-in, scores of variance 1.44, and smaller W_O and W_2."""
    one = width**-0.5
    scales = {"std_q": 1.2**0.5 * one, "std_k": 1.2**0.5 * one, "std_v": one, "std_1": one}
    scales |= {"std_o": 0.8 * one, "std_2": 0.8 * (4 * width) ** -0.5}
    return network_of(width=width, heads=4, **(SHARED | scales | KINDS[kind]))


def gaps(kind, width, seeds):
    """Returns rms errors over layers of cosine, log gradient and entropy, and standard errors."""
    keys = jax.vmap(jax.random.key)(np.arange(seeds))
    net = network(kind, width)
    layers, gradients = measure(keys, net, T, dtype=np.float32)
    errors, noise = [], []
    for measured, predicted in (
        (layers.cosine, forward(net, T).cosine),
        (np.log(gradients.size), np.log(backward(net, T).size)),
        (layers.entropy, forward(net, T).entropy),
    ):
        errors.append(np.sqrt(np.mean((measured.mean(0) - predicted) ** 2)))
        noise.append(np.sqrt(np.mean(measured.var(0, ddof=1)) / seeds))
    return np.array(errors), np.array(noise)


@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=pytest.mark.slow) for k in KINDS],
)
def test_the_gap_closes_with_width(kind):
    narrow, noise = gaps(kind, 16, 128)
    wide, _ = gaps(kind, 128, 24) if kind == "gpt2" else gaps(kind, 192, 96)
    size = np.linalg.norm
    assert size(narrow) > 3 * size(noise), "16 is too narrow for the theory: see it"
    assert size(wide) < size(narrow) / 2
    assert np.all(wide < (0.03, 0.05, 0.03))
