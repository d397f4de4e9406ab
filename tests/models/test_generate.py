"""Drawing tokens with a cache: the numbers of the full pass, and the tokens that were asked for."""

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


def made(**more):
    model = decoder(**SIZES, **more)
    return model, jax.jit(model.init)(jax.random.key(0), TOKENS)["params"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_cache_gives_the_logits_of_the_full_pass(kind):
    model, params = made(**KINDS[kind])
    full = jax.jit(model.apply)({"params": params}, TOKENS)
    call = jax.jit(lambda variables, tokens: model.apply(variables, tokens, mutable=["cache"]))
    found, kept, begin = [], {}, 0
    for size in (5, 1, 1, 3, 1, 1):  # a prompt, then tokens one by one or several
        logits, kept = call({"params": params, **kept}, TOKENS[:, begin : begin + size])
        found.append(logits)
        begin += size
    np.testing.assert_allclose(jnp.concatenate(found, 1), full, atol=1e-5)
    assert full.std() > 0.1


@pytest.mark.parametrize("kind", ["softmax", "mixit"])
def test_the_likeliest_tokens_are_those_of_slow_python(kind):
    model, params = made(**KINDS[kind])
    found = generate(model, params, TOKENS[:, :3], 9, jax.random.key(0), temperature=0)
    full = jax.jit(model.apply)
    slow = np.zeros((3, 12), int)  # what comes later does not matter to a causal model
    slow[:, :3] = TOKENS[:, :3]
    for t in range(3, 12):
        slow[:, t] = np.asarray(full({"params": params}, slow))[:, t - 1].argmax(-1)
    np.testing.assert_array_equal(found, slow)


def test_draws_follow_the_probabilities_and_the_key():
    model, params = made(qk_init_std=1.0)
    prompt = jnp.tile(TOKENS[:1, :4], (4000, 1))
    drawn = generate(model, params, prompt, 1, jax.random.key(0), temperature=0.5)[:, -1]
    p = jax.nn.softmax(model.apply({"params": params}, prompt[:1])[0, -1] / 0.5)
    share = np.bincount(np.asarray(drawn), minlength=11) / 4000
    assert (np.abs(share - p) <= 4 * np.sqrt(p * (1 - p) / 4000)).all() and p.max() < 0.9
    again = generate(model, params, prompt, 1, jax.random.key(0), temperature=0.5)[:, -1]
    other = generate(model, params, prompt, 1, jax.random.key(1), temperature=0.5)[:, -1]
    assert (again == drawn).all() and (other != drawn).any()


def test_a_nucleus_is_the_fewest_likeliest_tokens():
    p = jnp.array([[0.1, 0.5, 0.15, 0.25], [0.4, 0.3, 0.2, 0.1]])
    for top_p, kept in {
        0.0: [[0, 1, 0, 0], [1, 0, 0, 0]],
        0.5: [[0, 1, 0, 0], [1, 1, 0, 0]],
        0.74: [[0, 1, 0, 1], [1, 1, 1, 0]],
        0.8: [[0, 1, 1, 1], [1, 1, 1, 0]],
        1.0: [[1, 1, 1, 1], [1, 1, 1, 1]],
    }.items():
        found = jnp.isfinite(nucleus(jnp.log(p), top_p))
        np.testing.assert_array_equal(found, np.array(kept, bool), err_msg=str(top_p))


@pytest.mark.parametrize(
    "fields, T, words",
    [
        (dict(causal=False), 3, "only a causal one can be continued"),
        (dict(), 0, "the prompt is empty"),
        (dict(), 8, "the model holds 12 tokens, and the prompt's 8 with 5 to draw are 13"),
    ],
)
def test_what_cannot_be_continued_is_one_line(fields, T, words):
    model = decoder(**SIZES, **fields)
    with pytest.raises(UserError, match=words):
        generate(model, {}, TOKENS[:, :T], 5, jax.random.key(0))
