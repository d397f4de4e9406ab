"""Sampling with a cache: the logits of the full pass, greedy tokens, probabilities, nuclei."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.core.errors import UserError
from jaxformer.models.decoder import decoder
from jaxformer.models.generate import generate, nucleus

SIZES = dict(vocab_size=11, length=12, width=8, layers=2, heads=2, mlp_width=16, init_std="fan_in")
KINDS = {
    "softmax": dict(qk_init_std=1.0),
    "mixit": dict(mixer="mixit", mixing_scale=0.5, learned_positions=True),
    "all options": dict(use_bias=True, learned_positions=True, scan=True, residual_scale=0.7),
}
TOKENS = jax.random.randint(jax.random.key(5), (3, 12), 0, 11)


def initialised(**more):
    model = decoder(**SIZES, **more)
    return model, jax.jit(model.init)(jax.random.key(0), TOKENS)["params"]


@pytest.mark.parametrize("kind", KINDS)
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


@pytest.mark.parametrize("kind", ["softmax", "mixit"])
def test_temperature_0_takes_the_most_probable_token(kind):
    model, params = initialised(**KINDS[kind])
    generated = generate(model, params, TOKENS[:, :3], 9, jax.random.key(0), temperature=0)
    full = jax.jit(model.apply)
    expected = np.zeros((3, 12), int)  # a causal model ignores later tokens
    expected[:, :3] = TOKENS[:, :3]
    for t in range(3, 12):
        expected[:, t] = np.asarray(full({"params": params}, expected))[:, t - 1].argmax(-1)
    np.testing.assert_array_equal(generated, expected)


def test_samples_follow_the_probabilities_and_the_key():
    model, params = initialised(qk_init_std=1.0)
    prompt = jnp.tile(TOKENS[:1, :4], (4000, 1))
    drawn = generate(model, params, prompt, 1, jax.random.key(0), temperature=0.5)[:, -1]
    p = jax.nn.softmax(model.apply({"params": params}, prompt[:1])[0, -1] / 0.5)
    share = np.bincount(np.asarray(drawn), minlength=11) / 4000
    assert (np.abs(share - p) <= 4 * np.sqrt(p * (1 - p) / 4000)).all() and p.max() < 0.9
    again = generate(model, params, prompt, 1, jax.random.key(0), temperature=0.5)[:, -1]
    other = generate(model, params, prompt, 1, jax.random.key(1), temperature=0.5)[:, -1]
    assert (again == drawn).all() and (other != drawn).any()


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


@pytest.mark.parametrize(
    "fields, T, message",
    [
        (dict(causal=False), 3, "generation needs a causal model"),
        (dict(), 0, "the prompt is empty"),
        (
            dict(),
            8,
            "the model takes at most 12 tokens, got a prompt of 8 and 5 to draw, 13 in all",
        ),
    ],
)
def test_prompts_that_cannot_be_continued_raise_one_line(fields, T, message):
    model = decoder(**SIZES, **fields)
    with pytest.raises(UserError, match=message):
        generate(model, {}, TOKENS[:, :T], 5, jax.random.key(0))
