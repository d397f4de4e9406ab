"""The packaged trained network, and the display of its activations."""

import sys

import jax.numpy as jnp
import pytest

import jaxformer
from jaxformer.core.errors import UserError
from jaxformer.interp import capture
from jaxformer.models import toy


def test_the_toy_copies_and_shows_its_attention(tmp_path, monkeypatch):
    model, params, config = jaxformer.load("toy:induction")
    prompt = "jaxformejaxf"
    tokens = jnp.array([[config["alphabet"].index(letter) for letter in prompt]])
    logits, maps = capture.run(model, params, tokens, names=["pattern"])
    copied = "".join(config["alphabet"][i] for i in logits[0, 8:].argmax(-1))
    assert copied == "axfo" and config["accuracy"] > 0.99
    assert (toy.FOLDER / "induction.npz").stat().st_size < 400_000

    shown = capture.show(maps)
    assert repr(shown).splitlines()[0] == "block_0/attn/weights  float32[1, 2, 12, 12]"
    assert "treescope" in shown._repr_html_()
    monkeypatch.setitem(sys.modules, "treescope", None)
    assert shown._repr_html_().startswith("<pre>block_0/attn/weights")

    toy.save_toy(tmp_path / "copy.npz", params, config)
    monkeypatch.setattr(toy, "FOLDER", tmp_path)
    assert toy.load_toy("toy:copy")[2] == config


def test_a_wrong_toy_is_a_one_line_error():
    with pytest.raises(UserError, match="induction"):
        jaxformer.load("toy:inductoin")
    with pytest.raises(UserError, match="takes no further arguments"):
        jaxformer.load("toy:induction", dtype="bfloat16")
