"""--run: a network of ours as it is, beside the prediction."""

import jax
import numpy as np
import pytest

from jaxformer.errors import UserError
from jaxformer.models.decoder import DecoderSpec, decoder
from jaxformer.models.encoder import EncoderSpec
from theory.advise import inside
from theory.signal import Block, predict
from theory.signal.recursion import forward


def test_a_decoder_at_its_start_is_what_was_predicted():
    # Large weights: a small error would show.
    stds = {"init_std": "fan_in", "qk_init_std": 0.1, "embed_init_std": 1.0}
    model = decoder(vocab_size=500, length=12, width=128, layers=2, heads=2, mlp_width=256, **stds)
    tokens = jax.random.randint(jax.random.key(0), (16, 12), 0, 500)
    params = model.init(jax.random.key(1), tokens)["params"]
    found = inside.measured(model, params, tokens)
    net = inside.architecture(model.spec, 12)
    theory = inside.predicted(net, 12, rho0=max(found["cosine"][0], 0))
    np.testing.assert_allclose(found["cosine"], theory["cosine"], atol=0.03)
    np.testing.assert_allclose(found["keys"], theory["keys"], rtol=0.05)
    np.testing.assert_allclose(found["beta"], theory["beta"], rtol=0.05)
    assert found["gradient"][-1] == 1 and found["gradient"][0] > 0


def test_an_encoder_is_the_papers():
    spec = EncoderSpec(50, 64, 96, 5, 4, 1.2, 0.8, 0.9, 0.3, 0.4, 0.01, "gelu")
    block = Block(1.2, 0.8, 0.9, 0.3, 0.4, 0.01, "gelu")
    found = forward(inside.architecture(spec, 64), 64, 0.1)
    np.testing.assert_allclose(found.cosine, predict(block, 5, 64, 0.1).cosine, atol=1e-6)


def test_what_it_does_not_judge():
    mixit = DecoderSpec(50, 8, 16, 1, 2, 32, mixer="mixit")
    with pytest.raises(UserError, match="softmax decoders with norms, got 'mixit'"):
        inside.architecture(mixit, 8)
