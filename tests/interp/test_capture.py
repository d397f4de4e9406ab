"""Every activation has an address; capture returns only the requested ones, edits take effect."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer import capture
from jaxformer.core.errors import UserError
from jaxformer.models.activation_points import Request
from jaxformer.models.attention_paths import attention_paths
from jaxformer.models.decoder import decoder
from jaxformer.models.encoder import encoder
from jaxformer.models.recall import recall

SIZES = {"vocab_size": 11, "length": 6, "width": 8}
INIT = {"init_std": "fan_in", "qk_init_std": "fan_in", "embed_init_std": 1.0}
TOKENS = jax.random.randint(jax.random.key(1), (3, 5), 0, 11, jnp.int32)
OTHERS = (3 * TOKENS + 1) % 11
DECODER = decoder(**SIZES, **INIT, layers=2, heads=2, mlp_width=16)
MODELS = {
    "decoder": DECODER,
    "encoder": encoder(**SIZES, layers=2, heads=2, beta=1.0),
    "recall": recall(**SIZES, feed_forward=("mlp", "linear")),
}
STREAM = ["block_0/before", "block_0/between", "block_0/states"]
SOFTMAX = ["scores", "masked_scores", "weights"]


@functools.cache
def params_of(name):
    return jax.jit(MODELS[name].init)(jax.random.key(0), TOKENS)["params"]


def test_addresses_of_a_decoder_in_the_order_of_computation():
    block = [
        *("before", "attn_norm/factor", "attn_norm/output", "attn/values", "attn/queries"),
        *("attn/keys", "attn/turned_queries", "attn/turned_keys"),
        *(f"attn/{name}" for name in (*SOFTMAX, "heads", "output")),
        *("between", "mlp_norm/factor", "mlp_norm/output"),
        *("mlp/preactivation", "mlp/gates", "mlp/linear", "mlp/hidden", "mlp/output", "states"),
    ]
    blocks = [f"block_{i}/{name}" for i in range(2) for name in block]
    top = ["final_norm/factor", "final_norm/output", "final", "logits"]
    assert capture.names(DECODER) == ["token_embeddings", "embedded", *blocks, *top]


@pytest.mark.parametrize("name", MODELS)
def test_all_models_have_the_same_addresses(name):
    """All models have the same addresses, and each activation follows from the one before."""
    model, params = MODELS[name], params_of(name)
    known = capture.names(model)
    common = [f"block_1/attn/{x}" for x in ("queries", "keys", *SOFTMAX, "output")]
    common += ["embedded", "final", "logits", "block_1/mlp/output", "block_1/mlp/preactivation"]
    assert not {*common, *STREAM} - {*known}
    logits, result = capture.run(model, params, TOKENS, names=known)
    assert list(result) and set(result) == set(known)
    np.testing.assert_array_equal(result["logits"], logits)
    np.testing.assert_array_equal(result["block_0/states"], result["block_1/before"])
    np.testing.assert_array_equal(result["embedded"], result["block_0/before"])
    np.testing.assert_array_equal(logits, model.apply({"params": params}, TOKENS))
    weights = jax.nn.softmax(result["block_1/attn/masked_scores"])
    np.testing.assert_allclose(result["block_1/attn/weights"], weights, atol=1e-6)


def test_attention_paths_have_addresses_too():
    model = attention_paths(heads=(2, 2), width=4)
    x_BxTxn = jax.random.normal(jax.random.key(0), (3, 4, 5))
    params = model.init(jax.random.key(1), x_BxTxn)["params"]
    expected = {"embedded", "logits", *(f"block_1/attn/{x}" for x in ("maps", "mixed", "output"))}
    assert not expected - {*capture.names(model)}
    result = capture.capture(model, params, x_BxTxn, names=["block_0/attn/(maps|weights)"])
    maps, weights = result["block_0/attn/maps"], result["block_0/attn/weights"]
    np.testing.assert_array_equal(maps, weights.swapaxes(2, 3))
    assert capture.shapes(model, params)["embedded"].shape == (1, 2, 4)  # from vectors of width 5
    several = attention_paths(heads=(2, 2), width=(4, 5, 6))
    assert capture.names(several) == capture.names(model)


def test_only_what_is_asked_for_is_kept():
    """Outside of jit the collection of flax has only the requested array, too."""
    with Request(["block_0/attn/heads"]).active():
        _, kept = DECODER.apply({"params": params_of("decoder")}, TOKENS, mutable=["intermediates"])
    assert [x.shape for x in jax.tree.leaves(kept)] == [(3, 5, 2, 4)]


def test_without_a_request_a_point_costs_nothing():
    """The traced program of a model is identical to the one without activation points."""
    params = params_of("decoder")
    plain = jax.make_jaxpr(lambda p: DECODER.apply({"params": p}, TOKENS))(params)
    with Request().active():
        with_capture = jax.make_jaxpr(lambda p: DECODER.apply({"params": p}, TOKENS))(params)
    assert str(plain) == str(with_capture)


@pytest.mark.parametrize("name", MODELS)
def test_an_edit_moves_what_comes_after_it(name):
    """Every address affects the logits, and an edit by its own value changes nothing."""
    model, params = MODELS[name], params_of(name)
    before, result = capture.run(model, params, TOKENS, names=capture.names(model))
    same = capture.intervene(model, params, TOKENS, result)
    np.testing.assert_allclose(same, before, rtol=1e-5, atol=1e-6)

    @jax.jit
    @jax.vmap
    def moved(which):
        def new(i):
            return lambda x: jnp.where(which == i, 1.5 * x + 0.1, x)

        edits = {address: new(i) for i, address in enumerate(result)}
        return capture.intervene(model, params, TOKENS, edits)

    for address, logits in zip(result, moved(jnp.arange(len(result)))):
        assert np.abs(np.nan_to_num(logits) - before).max() > 1e-3, address


def test_edits_inside_grad_and_vmap():
    params = params_of("decoder")

    def loss(size):
        new = {"block_0/mlp/output": lambda x: size * x}
        return capture.intervene(DECODER, params, TOKENS, new).std()

    sizes = jnp.array([0.0, 1.0])
    first, second = jax.jit(jax.vmap(jax.value_and_grad(loss)))(sizes)
    np.testing.assert_allclose(first[1], DECODER.apply({"params": params}, TOKENS).std(), rtol=1e-5)
    slope = (loss(1.01) - loss(0.99)) / 0.02
    np.testing.assert_allclose(second[1], slope, rtol=0.02)


@pytest.mark.parametrize("more", [{"scan": True}, {"remat": True}])
def test_edits_in_scanned_and_rematerialised_models(more):
    model = decoder(**SIZES, **INIT, layers=2, heads=2, mlp_width=16, **more)
    new = {"block_0/attn/heads": capture.at(0.0, heads=[1]), "block_1/mlp/hidden": capture.mean}
    params = params_of("decoder")
    expected = capture.intervene(DECODER, params, TOKENS, new)
    np.testing.assert_allclose(
        capture.intervene(model, params, TOKENS, new), expected, rtol=1e-5, atol=1e-6
    )


def test_ablations_change_the_chosen_heads_and_positions_only():
    x = jnp.arange(24.0).reshape(3, 2, 2, 2)
    one = np.asarray(capture.at(capture.zero, heads=1, positions=[0])(x, "block_0/attn/heads"))
    expected = np.asarray(x).copy()
    expected[:, 0, 1] = 0
    np.testing.assert_array_equal(one, expected)
    np.testing.assert_array_equal(capture.mean(x), np.broadcast_to(x.mean(0), x.shape))
    for seed in range(5):  # nobody keeps his own, and nobody is lost
        other = capture.resample(jax.random.key(seed))(x)
        assert (np.asarray(other)[:, 0, 0, 0] != np.asarray(x)[:, 0, 0, 0]).all()
        np.testing.assert_array_equal(np.sort(other, 0), x)


def test_starting_and_stopping_at_a_block():
    params = params_of("decoder")
    whole = DECODER.apply({"params": params}, TOKENS)

    def after(p):
        return capture.stop_after(DECODER, p, TOKENS, block=0)

    def rest(p, states):
        return capture.start_at(DECODER, p, TOKENS, block=1, states=states)

    states = after(params)
    np.testing.assert_allclose(rest(params, states), whole, rtol=1e-5, atol=1e-6)

    def products(function, *args):
        return jax.jit(function).lower(*args).compile().as_text().count(" dot(")

    everything = products(lambda p: DECODER.apply({"params": p}, TOKENS), params)
    assert products(after, params) + products(rest, params, states) == everything


def test_an_ablation_of_one_example_by_itself_is_refused():
    """The mean over one example is the example: the ablation would have no effect."""
    params = params_of("decoder")
    for new in (capture.mean, capture.resample(jax.random.key(0)), capture.at(capture.mean, 0)):
        with pytest.raises(UserError, match="needs at least two examples, got 1"):
            capture.intervene(DECODER, params, TOKENS[:1], {"block_0/attn/heads": new})


def test_an_edit_of_heads_can_be_limited_to_positions():
    x = jnp.ones((1, 3, 2, 1))
    inner = capture.at(capture.zero, heads=[0])
    both = capture.at(inner, positions=[1])(x, "block_0/attn/heads")
    np.testing.assert_array_equal(both[0, :, :, 0], [[1, 1], [0, 1], [1, 1]])


@pytest.mark.parametrize(
    "edits, message",
    [
        ({"block_0/mlp/outputs": 0.0}, "matches no path. Did you mean 'block_0/mlp/output'"),
        ({"block_0/mlp/output": jnp.ones(3)}, r"must have the shape \(3, 5, 8\), got \(3,\)"),
        ({"final": capture.at(0.0, heads=0)}, r"final of shape \(3, 5, 8\) has no axis of heads"),
        ({"block_0/attn/heads": capture.at(0.0, heads=2)}, "has the heads 0 to 1, got 2"),
        (None, "needs {address: new value}"),
        ({"final": lambda x: None}, "the new value of final must be an array, got NoneType"),
    ],
)
def test_wrong_edits_are_one_line_errors(edits, message):
    with pytest.raises(UserError, match=message) as error:
        capture.intervene(DECODER, params_of("decoder"), TOKENS, edits)
    assert "\n" not in str(error.value)


def test_wrong_names_are_one_line_errors():
    with pytest.raises(UserError, match="Did you mean 'block_1/attn/heads'"):
        capture.capture(DECODER, params_of("decoder"), TOKENS, names=["block_1/attn/head"])
    with pytest.raises(UserError, match="a sequence of patterns, got the string"):
        capture.capture(DECODER, params_of("decoder"), TOKENS, names="final")


@pytest.mark.parametrize(
    "tokens, message",
    [
        (TOKENS[0], r"must be integers of shape \(B, T\), got int32\[5\]"),
        (TOKENS * 1.0, r"must be integers of shape \(B, T\), got float32\[3, 5\]"),
        ([[1, 2]], r"must be an array \(B, T\), got list"),
    ],
)
def test_tokens_of_another_form_are_refused(tokens, message):
    with pytest.raises(UserError, match=message):
        capture.capture(DECODER, params_of("decoder"), tokens, names=["final"])


@pytest.mark.parametrize("token", [-1, 11])
def test_tokens_of_another_vocabulary_are_refused(token):
    tokens = TOKENS.at[1, 2].set(token)
    with pytest.raises(UserError, match=r"from 0 to 10, .* of another tokenizer"):
        capture.capture(DECODER, params_of("decoder"), tokens, names=["final"])
    traced = jax.jit(lambda x: capture.capture(DECODER, params_of("decoder"), x, names=["final"]))
    traced(tokens)  # nobody can look at them there
