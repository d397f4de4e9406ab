"""Logit lens, attribution and circuits against their definitions."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer import capture
from jaxformer.core.errors import UserError
from jaxformer.interp import lens, plots
from jaxformer.models.attention_paths import attention_paths
from jaxformer.models.encoder import encoder
from jaxformer.models.pretrained import tiny
from tests.interp.test_capture import DECODER, MODELS, TOKENS, params_of
from tests.models.tiny_configs import CONFIGS

LLAMA, WEIGHTS, _ = tiny.tiny("llama", 24)


def metric(logits):
    return (logits[:, -1, 3] - logits[:, -1, 5]).sum()


def test_the_lens_is_norm_and_unembedding():
    result = lens.logit_lens(DECODER, params_of("decoder"), TOKENS)
    assert list(result) == ["block_0/states", "block_1/states"]
    params = params_of("decoder")
    states = capture.capture(DECODER, params, TOKENS, names=["block_0/states"])["block_0/states"]
    unit = states / jnp.sqrt((states**2).mean(-1, keepdims=True) + 1e-6)
    expected = unit * params["final_norm"]["scale"][None, None] @ params["unembed"]["kernel"]
    np.testing.assert_allclose(result["block_0/states"], expected, atol=1e-5)
    last = DECODER.apply({"params": params}, TOKENS)
    np.testing.assert_allclose(result["block_1/states"], last, atol=1e-5)


def test_the_lens_of_a_model_without_a_number_of_layers():
    """The blocks of the recall model are counted in its parameters."""
    model, params = MODELS["recall"], params_of("recall")
    result = lens.logit_lens(model, params, TOKENS)
    last = model.apply({"params": params}, TOKENS)
    np.testing.assert_allclose(result["block_1/states"], last, atol=1e-5)
    kernels = params["block_0"]["attn"]
    factors = lens.ov(model, params, 0, 0)
    expected = kernels["value"]["kernel"] @ kernels["out"]["kernel"]
    np.testing.assert_allclose(factors.left @ factors.right.T, expected, atol=1e-6)


@pytest.mark.parametrize("kind", [pytest.param("gpt_neox", marks=pytest.mark.slow), "llama"])
def test_the_parts_add_up(kind):
    """Without biases the parts add up to the logit. The part of a head is its z W_O, read out."""
    model, params, _ = tiny.tiny(CONFIGS[kind], 24)

    @jax.jit
    def all_of_it(params):
        names = ["block_0/attn/heads", "final_norm/factor"]
        result = capture.capture(model, params, TOKENS, names=names)
        return lens.attribution(model, params, TOKENS, metric=metric), result

    (parts, total, rest), result = all_of_it(params)
    np.testing.assert_allclose(total, metric(model.apply({"params": params}, TOKENS)), rtol=1e-5)
    assert parts["block_0/attn/heads"].shape == (3, 5, model.spec.heads)
    assert parts["block_1/mlp/output"].shape == parts["embedded"].shape == (3, 5)
    assert (abs(rest) < 1e-4) == (kind == "llama")
    if kind == "llama":  # written out: past everything, straight into the two logits
        heads = result["block_0/attn/heads"][:, -1, 1]
        kernel = params["block_0"]["attn"]["out"]["kernel"].reshape(4, 8, 16)[1]
        read = params["unembed"]["kernel"][:, 3] - params["unembed"]["kernel"][:, 5]
        gain = params["final_norm"]["scale"][None] * result["final_norm/factor"][:, -1]
        expected = ((heads @ kernel) * gain) @ read
        np.testing.assert_allclose(parts["block_0/attn/heads"][:, -1, 1], expected, rtol=1e-4)
        assert np.abs(parts["block_0/attn/heads"][:, :-1]).max() == 0


@pytest.mark.parametrize(
    ("of_logits", "is_linear"),
    [
        (metric, True),
        (lambda logits: metric(logits) + 3, True),
        (lambda logits: jax.nn.log_softmax(logits)[0, -1, 3], False),
        (lambda logits: jax.nn.softmax(logits)[0, -1, 3], False),
        (lambda logits: logits[0, -1].max(), False),
    ],
)
def test_a_metric_that_is_not_linear_is_warned_of(of_logits, is_linear):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lens.attribution(LLAMA, WEIGHTS, TOKENS, metric=of_logits)
    assert [("not linear in the logits" in str(w.message)) for w in caught] == [True] * (
        not is_linear
    )


def test_thin_factors_score_circuits_like_full_matrices():
    """Compares scores of thin factors with those of full matrices, with grouped queries, too."""

    def full(factors):
        return np.asarray(factors.left @ factors.right.T, np.float64)

    first, second = lens.ov(LLAMA, WEIGHTS, 0, 1), lens.qk(LLAMA, WEIGHTS, 1, 3)
    key = WEIGHTS["block_1"]["attn"]["key"]["kernel"].reshape(16, 2, 8)[:, 1]
    np.testing.assert_array_equal(second.right, key)
    u, s, v = lens.svd(second)
    np.testing.assert_allclose(s, np.linalg.svd(full(second))[1][:8], rtol=1e-4)
    np.testing.assert_allclose((u * s[None]) @ v.T, full(second), atol=1e-5)
    for kind, later in (
        ("query", full(second)),
        ("key", full(second).T),
        ("value", full(lens.ov(LLAMA, WEIGHTS, 1, 3))),
    ):
        expected = np.linalg.norm(full(first) @ later)
        expected /= np.linalg.norm(full(first)) * np.linalg.norm(later)
        result = lens.composition(LLAMA, WEIGHTS, 0, 1, kind)
        np.testing.assert_allclose(result[1, 3], expected, rtol=1e-4)


def test_what_has_no_stream_is_refused():
    model = encoder(vocab_size=11, length=5, width=8, layers=1, heads=2, beta=1.0)
    params = model.init(jax.random.key(0), TOKENS)["params"]
    with pytest.raises(UserError, match="Encoder has none"):
        lens.attribution(model, params, TOKENS, metric=metric)
    with pytest.raises(UserError, match="has no block_0/attn/out/kernel"):
        lens.ov(model, params, 0, 0)
    paths = attention_paths(width=4, heads=(2, 3))
    with pytest.raises(UserError, match="has no heads that read and write one residual stream"):
        lens.qk(paths, {}, 0, 0)
    with pytest.raises(UserError, match="heads 0 to 3, got 4"):
        lens.qk(LLAMA, WEIGHTS, 0, 4)
    with pytest.raises(UserError, match="0 <= earlier < later < 2, got 1 and 0"):
        lens.composition(LLAMA, WEIGHTS, 1, 0, "key")


def test_pictures_have_the_tokens_on_their_axes(tmp_path):
    tokens = ["' When'", "' Mary'", "' and'"]
    figure = plots.attention(np.tril(np.ones((3, 3))), tokens, file=tmp_path / "a.png")
    axis = figure.axes[0]
    assert [label.get_text() for label in axis.get_xticklabels()] == tokens
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    shown = axis.images[0].get_array()
    assert np.ma.getmaskarray(shown)[0, 1] and shown[1, 0] == 1
    both_sides = plots.attention(np.full((3, 3), 1 / 3), tokens)  # of a model that is not causal
    assert not np.ma.getmaskarray(both_sides.axes[0].images[0].get_array()).any()
    assert plots.heat([[1.0, -2.0]], ["a"], ["b", "c"]).axes[0].images[0].get_clim() == (-2, 2)
    with pytest.raises(UserError, match=r"1 rows and 2 columns are named, got values \(2, 2\)"):
        plots.heat(np.ones((2, 2)), ["a"], ["b", "c"])


def test_the_lens_at_positions_and_block_by_block():
    params = params_of("decoder")
    whole = lens.logit_lens(DECODER, params, TOKENS)
    last = lens.logit_lens(DECODER, params, TOKENS, positions=[-1, 0])
    streamed = dict(lens.stream_logit_lens(DECODER, params, TOKENS, positions=-1))
    traced = jax.jit(lambda p: lens.logit_lens(DECODER, p, TOKENS, positions=-1))(params)
    for address, logits in whole.items():
        np.testing.assert_allclose(last[address], logits[:, [-1, 0]], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(streamed[address], logits[:, -1:], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(traced[address], logits[:, -1:], rtol=1e-5, atol=1e-6)
    assert list(streamed) == list(whole)
    with pytest.raises(UserError, match="positions are from -5 to 4, got 5"):
        lens.logit_lens(DECODER, params, TOKENS, positions=5)
