"""Generation: the tokens of full passes with and without a cache, under edits, compiled once."""

import logging
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxformer
from jaxformer import capture
from jaxformer.core.errors import UserError
from jaxformer.models.decoder import decoder
from jaxformer.models.pretrained import tiny
from jaxformer.models.sampling import nucleus

SIZES = dict(vocab_size=11, length=12, width=8, layers=2, heads=2, mlp_width=16, init_std="fan_in")
KINDS = {
    "softmax": dict(qk_init_std=1.0),
    "mixit": dict(mixer="mixit", mixing_scale=0.5, learned_positions=True),
    "all options": dict(use_bias=True, learned_positions=True, scan=True, residual_scale=0.7),
}
CACHED = [pytest.param(k, marks=() if k == "all options" else pytest.mark.slow) for k in KINDS]
TOKENS = jax.random.randint(jax.random.key(5), (3, 12), 0, 11)
ROWS = [[1, 5, 2], [4], [3, 9, 7, 6, 2]]  # prompts of several lengths


def initialised(**more):
    model = decoder(**SIZES, **more)
    return model, jax.jit(model.init)(jax.random.key(0), TOKENS)["params"]


@pytest.fixture(scope="module")
def llama():
    model, params, _ = tiny.tiny("llama", 24)
    return model, jax.tree.map(jnp.asarray, params)


def by_full_passes(model, params, edits=None):
    """Returns a function of a prompt and a number: the most probable tokens after the prompt.

    Each token is from a pass over the whole text.
    """

    @jax.jit
    def logits(tokens):
        return capture.run(model, params, tokens, edits=edits or {})[0]

    def continued(prompt, new):
        size = len(prompt) + new
        tokens = np.zeros((1, SIZES["length"]), np.int32)  # a causal model ignores later tokens
        tokens[0, : len(prompt)] = prompt
        for t in range(len(prompt), size):
            tokens[0, t] = np.asarray(logits(tokens))[0, t - 1].argmax()
        return tokens[0, len(prompt) : size]

    return continued


@pytest.mark.parametrize("kind", CACHED)
def test_a_cache_gives_the_logits_of_the_full_pass(kind):
    model, params = initialised(**KINDS[kind])
    full = jax.jit(model.apply)({"params": params}, TOKENS)
    call = jax.jit(lambda variables, tokens: model.apply(variables, tokens, mutable=["cache"]))
    parts, state, begin = [], {}, 0
    for size in (5, 1, 1, 3, 1, 1):  # a prompt, then tokens one by one or several
        logits, state = call({"params": params, **state}, TOKENS[:, begin : begin + size])
        parts.append(logits)
        begin += size
    np.testing.assert_allclose(jnp.concatenate(parts, 1), full, atol=1e-5)
    assert full.std() > 0.1


@pytest.mark.parametrize("kind", ["softmax", pytest.param("mixit", marks=pytest.mark.slow)])
def test_our_decoders_continue_prompts_of_one_and_of_several_lengths(kind):
    model, params = initialised(**KINDS[kind])
    even = jaxformer.generate(model, params, TOKENS[:, :3], new=9).tokens
    uneven = jaxformer.generate(model, params, ROWS, new=7).tokens
    continued = by_full_passes(model, params)
    for prompt, row in zip(TOKENS[:, :3].tolist(), even, strict=True):
        np.testing.assert_array_equal(row, continued(prompt, 9))
    for prompt, row in zip(ROWS, uneven, strict=True):
        np.testing.assert_array_equal(row, continued(prompt, 7))


def test_edits_and_captures_are_those_of_a_full_pass(llama):
    """Edits of all tokens, of one head, and of a position inside and after the prompt."""
    model, params = llama
    vector = 3 * jax.random.normal(jax.random.key(1), (model.spec.width,))
    edits = {
        "block_0/mlp/output": 0,
        "block_1/attn/heads": capture.at(capture.zero, heads=[1], positions=[2, 7]),
        "block_0/states": capture.at(capture.plus(vector), positions=jnp.array([1, 6, 8])),
    }
    prompt, names = [3, 9, 7, 6, 2], ["block_1/attn/weights", "block_1/states"]
    edited = jaxformer.generate(model, params, [prompt], new=6, edits=edits, capture=names)
    expected = by_full_passes(model, params, edits)(prompt, 6)
    np.testing.assert_array_equal(edited.tokens[0], expected)
    plain = by_full_passes(model, params)(prompt, 6)
    assert (plain != expected).any()
    text = jnp.array([[*prompt, *expected]])
    kept = capture.run(model, params, text, names=names, edits=edits)[1]
    assert list(edited.activations) == list(kept)
    for address, value in kept.items():
        np.testing.assert_allclose(edited.activations[address], value, atol=1e-5)


def test_prompts_of_several_lengths_stop_at_their_own_tokens(llama):
    model, params = llama
    continued = by_full_passes(model, params)
    alone = [continued(prompt, 6) for prompt in ROWS]
    stop = int(alone[0][2])
    together = jaxformer.generate(model, params, ROWS, new=6, stop=[stop])
    for row, length, expected in zip(together.tokens, together.lengths, alone, strict=True):
        ends = np.flatnonzero(expected == stop)
        expected_length = ends[0] + 1 if ends.size else 6
        assert length == expected_length
        np.testing.assert_array_equal(row[:length], expected[:length])
        assert (row[length:] == stop).all()
    assert together.lengths[0] <= 3


def compilations(caplog, call):
    """Returns the number of programs that a call compiles, by JAX's own log."""
    caplog.clear()
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        jax.block_until_ready(call().tokens)
    return sum("Finished XLA compilation" in record.getMessage() for record in caplog.records)


def test_a_second_call_of_one_shape_compiles_nothing(llama, caplog):
    model, params = llama

    def call(scale=1.0, seed=0, new=4):
        steering = capture.at(capture.plus(scale * np.ones(model.spec.width)), positions=[2])
        return jaxformer.generate(
            model,
            params,
            [[seed + 1, 2, 3], [4]],
            new=new,
            edits={"block_0/states": steering, "block_1/mlp/output": scale},
            temperature=0.5 + scale,
            top_p=0.9,
            key=jax.random.key(seed),
            stop=[seed],
        )

    assert compilations(caplog, call) > 0
    assert compilations(caplog, lambda: call(2.0, 3)) == 0
    assert compilations(caplog, lambda: call(new=5)) > 0


def test_a_function_as_edit_that_reads_a_changed_variable_edits_anew(llama):
    model, params = llama
    token = 3

    def answer(logits):
        return jnp.where(jnp.arange(logits.shape[-1]) == token, 1.0, jnp.zeros_like(logits))

    for token in (3, 7):
        out = jaxformer.generate(model, params, [[1, 2]], new=2, edits={"logits": answer})
        assert out.tokens.tolist() == [[token, token]]


def test_samples_follow_the_probabilities_and_the_key():
    model, params = initialised(qk_init_std=1.0)
    prompt = jnp.tile(TOKENS[:1, :4], (4000, 1))

    def draw(seed):
        key = jax.random.key(seed)
        return jaxformer.generate(model, params, prompt, new=1, key=key, temperature=0.5).tokens

    drawn = draw(0)
    logits: Any = model.apply({"params": params}, prompt[:1])
    p = jax.nn.softmax(logits[0, -1] / 0.5)
    share = np.bincount(np.asarray(drawn[:, 0]), minlength=11) / 4000
    assert (np.abs(share - p) <= 4 * np.sqrt(p * (1 - p) / 4000)).all() and p.max() < 0.9
    assert (draw(0) == drawn).all() and (draw(1) != drawn).any()


def test_a_nucleus_is_the_fewest_most_probable_tokens():
    p = jnp.array([[0.1, 0.5, 0.15, 0.25], [0.4, 0.3, 0.2, 0.1]])
    for top_p, kept in {
        0.0: [[0, 1, 0, 0], [1, 0, 0, 0]],
        0.5: [[0, 1, 0, 0], [1, 1, 0, 0]],
        0.74: [[0, 1, 0, 1], [1, 1, 1, 0]],
        0.8: [[0, 1, 1, 1], [1, 1, 1, 0]],
        1.0: [[1, 1, 1, 1], [1, 1, 1, 1]],
    }.items():
        in_nucleus = jnp.isfinite(nucleus(jnp.log(p), top_p))
        np.testing.assert_array_equal(in_nucleus, np.array(kept, bool), err_msg=str(top_p))


def test_logits_that_are_not_finite_end_a_row(llama):
    model, params = llama
    out = jaxformer.generate(model, params, [[1, 2]], new=3, edits={"block_0/states": np.nan})
    assert out.tokens.tolist() == [[-1, -1, -1]] and out.lengths.tolist() == [1]


def test_wrong_arguments_raise_one_line_errors(llama):
    small = decoder(**SIZES)
    both = decoder(**SIZES, causal=False)
    cases: Any = (
        (both, TOKENS[:, :3], {}, "generation needs a causal model"),
        (small, TOKENS[:, :0], {}, "the prompt is empty"),
        (small, [[1], []], {}, "a prompt is empty"),
        (small, [1, 2], {}, "a list of token ids for each prompt"),
        (small, TOKENS[:, :8], {}, "at most 12 tokens, got a prompt of 8 and 5 to draw, 13 in all"),
        (small, [[1]], {"temperature": -1.0}, "temperature must be at least 0, got -1"),
        (small, [[1]], {"temperature": 1.0}, "needs key=jax.random.key"),
        (small, [[1]], {"top_p": 2}, "top_p must be at most 1"),
        (small, [[11]], {}, "the tokens must be from 0 to 10"),
        (small, [[1]], {"real": np.ones((1, 1))}, "`real` marks padding"),
        (small, "text", {}, "need a tokenizer: load the model"),
        (small, ["text"], {}, "need a tokenizer: load the model"),
        (llama[0], [[1]], {"edits": {"block_7/states": 0}}, "block_7/states"),
        (llama[0], [[1]], {"capture": ["block_0/nothing"]}, "block_0/nothing"),
        (llama[0], [[1]], {"edits": {"block_0/states": "x"}}, "must be an array, got str"),
    )
    for model, tokens, options, message in cases:
        params = llama[1] if model is llama[0] else {}
        with pytest.raises(UserError, match=message) as error:
            jaxformer.generate(model, params, tokens, new=5, **options)
        assert "\n" not in str(error.value)
