"""Gradients at addresses, and activations of many prompts on disk."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer import capture
from jaxformer.core.errors import UserError
from tests.interp.test_capture import DECODER, TOKENS, params_of

NAMES = [r"block_\d+/states", "block_1/attn/heads"]


def margin(logits):
    return (logits[:, -1, 3] - logits[:, -1, 5]).sum()


def test_gradients_predict_a_small_change():
    params, address, size = params_of("decoder"), "block_0/states", 1e-2
    slopes = capture.gradients(DECODER, params, TOKENS, names=["resid_post"], metric=margin)
    assert list(slopes) == ["block_0/states", "block_1/states"]
    direction = jnp.sign(slopes[address])

    @jax.jit
    def shifted(size):
        edits = {address: lambda x: x + size * direction}
        return margin(capture.intervene(DECODER, params, TOKENS, edits))

    expected = 2 * size * jnp.abs(slopes[address]).sum()
    np.testing.assert_allclose(shifted(size) - shifted(-size), expected, rtol=0.02)


def test_stored_activations_are_the_captured_ones_and_resume(tmp_path, monkeypatch):
    prompts = jnp.concatenate([TOKENS, (TOKENS + 1) % 11])[:5]
    expected = capture.capture(DECODER, params_of("decoder"), prompts, names=NAMES)
    folder = capture.store(
        tmp_path / "a", DECODER, params_of("decoder"), prompts, NAMES, batch_size=2
    )
    assert len(list(folder.glob("*.npz"))) == 3
    stored = capture.load_stored(folder)
    assert list(stored) == list(expected)
    for address, value in expected.items():
        np.testing.assert_allclose(stored[address], value, rtol=1e-5, atol=1e-6)

    (folder / "batch_000001.npz").unlink()
    with pytest.raises(UserError, match=r"has 1 of 3 batches; call store again: it resumes"):
        capture.load_stored(folder)
    untouched = (folder / "batch_000000.npz").stat().st_mtime_ns
    capture.store(folder, DECODER, params_of("decoder"), prompts, NAMES, batch_size=2)
    np.testing.assert_array_equal(
        capture.load_stored(folder)["block_1/states"], stored["block_1/states"]
    )
    assert (folder / "batch_000000.npz").stat().st_mtime_ns == untouched
    with pytest.raises(UserError, match=r"activations of another call \(checksum\)"):
        capture.store(
            folder, DECODER, params_of("decoder"), (prompts + 1) % 11, NAMES, batch_size=2
        )


def test_stored_positions_and_dtype(tmp_path):
    folder = capture.store(
        tmp_path,
        DECODER,
        params_of("decoder"),
        TOKENS,
        ["block_1/states"],
        positions=[-1],
        dtype="float16",
    )
    states = capture.capture(DECODER, params_of("decoder"), TOKENS, names=["block_1/states"])[
        "block_1/states"
    ]
    stored = capture.load_stored(folder)["block_1/states"]
    assert stored.dtype == np.float16 and stored.shape == (3, 1, 8)
    np.testing.assert_allclose(stored, states[:, -1:], rtol=2**-10, atol=1e-5)
    with pytest.raises(UserError, match="positions are from -5 to 4, got 9"):
        capture.store(tmp_path / "b", DECODER, params_of("decoder"), TOKENS, NAMES, positions=[9])
    with pytest.raises(UserError, match="dtype must be one of NumPy, such as 'float16', got 'foo'"):
        capture.store(tmp_path / "b", DECODER, params_of("decoder"), TOKENS, NAMES, dtype="foo")
    with pytest.raises(UserError, match="has no activations"):
        capture.load_stored(tmp_path / "b")


DAMAGES = [b"", b"[" * 10**5, b"[1]", b"\xff", b'{"prompts": "5"}', b"{}"]


def test_a_damaged_request_is_a_one_line_error(tmp_path):
    prompts = TOKENS, ["block_1/states"]
    folder = capture.store(tmp_path / "a", DECODER, params_of("decoder"), *prompts)
    file = folder / "request.json"
    whole = file.read_bytes()
    for content in (*DAMAGES, whole.replace(b'"positions": null', b'"positions": [0]')):
        file.write_bytes(content)
        for call in (
            lambda: capture.load_stored(folder),
            lambda: capture.store(folder, DECODER, params_of("decoder"), *prompts),
        ):
            with pytest.raises(UserError, match=r"request\.json is damaged") as error:
                call()
            assert "\n" not in str(error.value)
