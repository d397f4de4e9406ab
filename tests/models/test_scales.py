"""The factors of a decoder's scores and logits, which muP needs; both are off by default."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.capture import capture
from jaxformer.core.errors import UserError
from jaxformer.models import export
from jaxformer.models.decoder import decoder
from theory.advise import model_architecture

SIZES = dict(vocab_size=11, length=6, width=8, layers=2, heads=2, mlp_width=8)
INIT = dict(init_std="fan_in", qk_init_std="fan_in", embed_init_std=1.0)
TOKENS = jnp.array([[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]])


@pytest.fixture(scope="module")
def params():
    return decoder(**SIZES, **INIT).init(jax.random.key(0), TOKENS)["params"]


def apply(params, *inputs, **options) -> Any:
    return decoder(**SIZES, **INIT, **options).apply({"params": params}, TOKENS, *inputs)


def test_scores_have_the_given_factor_with_and_without_a_cache(params):
    scores = {}
    for scale in (0.0, 0.25):
        model = decoder(**SIZES, **INIT, score_scale=scale)
        scores[scale] = capture(model, params, TOKENS, names=["block_0/attn/scores"])
    first, second = (next(iter(x.values())) for x in scores.values())
    np.testing.assert_allclose(second, first * 0.25 * 4**0.5, rtol=1e-6)
    expected = apply(params, score_scale=0.25)
    assert abs(expected - apply(params)).max() > 1e-2
    np.testing.assert_allclose(apply(params, score_scale=0.25, fused=True), expected, atol=1e-6)
    model = decoder(**SIZES, **INIT, score_scale=0.25)
    cached: Any = model.apply({"params": params}, TOKENS, mutable=["cache"])[0]
    np.testing.assert_allclose(cached, expected, atol=1e-6)


def test_logits_have_the_given_factor_also_where_a_loss_computes_them_in_parts(params):
    logits = apply(params, logit_scale=0.5)
    np.testing.assert_allclose(logits, 0.5 * apply(params), rtol=1e-6)
    states = apply(params, None, False, logit_scale=0.5)
    np.testing.assert_allclose(states @ params["unembed"]["kernel"], logits, atol=1e-6)


def test_factors_change_no_initial_value_and_the_default_is_the_usual_one(params):
    drawn = decoder(**SIZES, **INIT, score_scale=0.25, logit_scale=0.5).init(
        jax.random.key(0), TOKENS
    )["params"]
    jax.tree.map(np.testing.assert_array_equal, drawn, params)
    np.testing.assert_array_equal(apply(params, score_scale=4**-0.5), apply(params))


def test_what_assumes_the_usual_factors_says_so():
    for options, problem in (
        ({"score_scale": 0.25}, "it scales its scores"),
        ({"logit_scale": 0.5}, "it scales its logits"),
    ):
        with pytest.raises(UserError, match=problem):
            export.check(decoder(**SIZES, **options))
        with pytest.raises(UserError, match=next(iter(options))):
            decoder(**SIZES, **{name: -1.0 for name in options})
    for scale, expected in ((0.0, 0.5), (0.125, 0.125)):
        spec = decoder(**SIZES, score_scale=scale).spec
        assert model_architecture.architecture_of(spec).score_scale == expected
