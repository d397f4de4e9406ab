"""--run: a network of ours as it is, beside the prediction."""

import json

import jax
import numpy as np
import pytest

from jaxformer import capture
from jaxformer.errors import UserError
from jaxformer.models.decoder import DecoderSpec, decoder
from jaxformer.models.encoder import EncoderSpec
from jaxformer.models.pretrained import tiny
from tests.theory import configs
from theory.advise import check, inside
from theory.advise.question import Question
from theory.advise.solve import solve
from theory.signal import Block, hf, predict
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


@pytest.mark.slow  # eager, and a gradient of every weight
@pytest.mark.parametrize("kind", ["gpt2", "llama", "gpt_neox"])
def test_a_published_model_is_measured(kind):
    """By the addresses that it shares with ours: of its own arrays, computed by hand."""
    model, params, _ = tiny.tiny(kind, 24)
    tokens = jax.random.randint(jax.random.key(0), (4, 6), 0, 24)
    found = inside.measured(model, params, tokens)
    name = "block_1/attn/weights"
    rows = np.asarray(capture.capture(model, params, tokens, names=[name])[name], float)
    entropy = -(rows * np.log(np.where(rows > 0, rows, 1))).sum(-1).mean()
    np.testing.assert_allclose(found["keys"][1], np.exp(entropy), rtol=1e-4)
    assert len(found["cosine"]) == 3 and np.isfinite(found["cosine"]).all()
    assert found["gradient"][-1] == 1 and found["gradient"][0] > 0


def test_an_encoder_is_the_papers():
    spec = EncoderSpec(50, 64, 96, 5, 4, 1.2, 0.8, 0.9, 0.3, 0.4, 0.01, "gelu")
    block = Block(1.2, 0.8, 0.9, 0.3, 0.4, 0.01, "gelu")
    found = forward(inside.architecture(spec, 64), 64, 0.1)
    np.testing.assert_allclose(found.cosine, predict(block, 5, 64, 0.1).cosine, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, what, target",
    [
        ("BERT", "init-std", 0.5),
        ("GPT2", "depth-scale", 0.3),
        ("LLAMA", "residual", 0.5),
        ("VIT", "init-std", 0.15),
        ("PYTHIA", "depth-scale", 0.3),
    ],
)
def test_what_was_solved_for_is_measured(tmp_path, name, what, target):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(getattr(configs, name)))
    reading = hf.read(path)
    net = reading.architecture.replace(layers=8)
    question = Question(net, 64, init_std=reading.init_std, model_type=reading.model_type)
    solved = solve(question, what, target, 8.0)
    found = check.measured(question, solved["architecture"])
    assert abs(found["cosine"] - target) < 0.05
    assert found["keys"] == pytest.approx(solved["keys"], rel=0.02)
    assert found["gradient_ratio"] == pytest.approx(solved["gradient_ratio"], rel=0.1)


@pytest.mark.slow
def test_the_width_check_names_what_drifts(tmp_path):
    # Deviations that do not know the width: everything drifts. With 1/sqrt(width) nothing would.
    path = tmp_path / "config.json"
    path.write_text(json.dumps(configs.GPT2 | {"n_layer": 2, "n_embd": 64, "n_head": 4}))
    found = check.widths(Question(hf.read(path, init_std=0.1).architecture, 32))
    assert [row["width"] for row in found["rows"]] == [32, 64, 128, 256]
    assert {"norm", "beta"} <= set(found["drifts"])
    for row in found["rows"][1:]:
        assert row["measured"]["norm"] == pytest.approx(row["predicted"]["norm"], rel=0.1)


def test_what_it_does_not_judge():
    mixit = DecoderSpec(50, 8, 16, 1, 2, 32, mixer="mixit")
    with pytest.raises(UserError, match="softmax decoders with norms, got 'mixit'"):
        inside.architecture(mixit, 8)
