"""Patching compared with one intervention at a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer import capture
from jaxformer.core.errors import UserError
from jaxformer.interp import lens
from jaxformer.interp.capture import patching
from jaxformer.interp.patching import patch_grid
from tests.interp.test_capture import DECODER, OTHERS, TOKENS, params_of

PARAMS_ = params_of("decoder")


def metric(logits):
    return logits[:, -1, 3].mean() - logits[:, -1, 5].mean()


def test_patching_is_one_intervention_after_another():
    names = ["block_0/attn/heads", "block_1/states", "block_1/attn/weights"]
    by = ("position", "head")
    result = capture.patch(DECODER, PARAMS_, TOKENS, OTHERS, names, metric, by, at_once=7)
    assert [result[name].shape for name in names] == [(5, 2), (5,), (5, 2)]
    clean = capture.capture(DECODER, PARAMS_, TOKENS, names=names)

    def slow(name, position, head):
        new = {name: capture.at(clean[name], heads=head, positions=position)}
        return metric(capture.intervene(DECODER, PARAMS_, OTHERS, new))

    for name in (names[0], names[2]):
        expected = [[slow(name, p, h) for h in range(2)] for p in (0, 4)]
        np.testing.assert_allclose(result[name][[0, 4]], expected, atol=1e-5)
    np.testing.assert_allclose(result[names[1]][2], slow(names[1], 2, None), atol=1e-5)
    # The whole stream of the clean run is the clean run. Prompts may be lists.
    lists = TOKENS.tolist(), OTHERS.tolist()
    whole = capture.patch(DECODER, PARAMS_, *lists, "block_0/states", metric)
    clean_value = metric(DECODER.apply({"params": PARAMS_}, TOKENS))
    np.testing.assert_allclose(whole["block_0/states"], clean_value, atol=1e-5)
    assert abs(clean_value - metric(DECODER.apply({"params": PARAMS_}, OTHERS))) > 0.1


def test_the_order_of_the_axes_is_that_asked_for():
    name = "block_0/attn/heads"
    one = capture.patch(DECODER, PARAMS_, TOKENS, OTHERS, name, metric, ("position", "head"))
    two = capture.patch(DECODER, PARAMS_, TOKENS, OTHERS, name, metric, ("head", "position"))
    np.testing.assert_allclose(two[name], one[name].T, rtol=1e-5, atol=1e-6)


def test_a_patch_that_changes_nothing_says_so():
    for names in (["block_0/attn/heads"], ["block_0/attn/heads", "block_1/states"]):
        with pytest.warns(UserWarning, match="no patch changes the metric: at"):
            capture.patch(DECODER, PARAMS_, OTHERS, OTHERS, names, metric)


def test_a_prompt_without_a_token_is_a_one_line_error():
    with pytest.raises(UserError, match=r"no token to read: the prompts have the shape \(1, 0\)"):
        capture.capture(DECODER, PARAMS_, jnp.zeros((1, 0), int), names=["block_0/states"])


def test_one_program_for_all_prompts():
    patching._program.cache_clear()
    for shift in (0, 1):
        tokens = (TOKENS + shift) % 11
        capture.patch(DECODER, PARAMS_, tokens, OTHERS, r"block_\d/states", metric, ("position",))
    assert patching._program.cache_info().misses == 1
    program = patching._program(DECODER, ("block_0/states", "block_1/states"), metric)
    assert program._cache_size() == 1


def test_attribution_is_the_slope_of_patching():
    """For almost equal prompts, patching and attribution agree to second order."""
    names = ["block_0/mlp/output", "block_1/attn/heads"]
    table = PARAMS_["embed"]["embedding"]
    near = PARAMS_ | {"embed": {"embedding": table}}
    by = ("head",)
    exact = capture.patch(DECODER, near, TOKENS, OTHERS, names, metric, by)
    start = metric(DECODER.apply({"params": near}, OTHERS))
    slopes = capture.attribute(DECODER, near, TOKENS, OTHERS, names, metric, by)
    assert slopes["block_1/attn/heads"].shape == (2,) and slopes[names[0]].shape == ()

    def patched(size):
        there = capture.capture(DECODER, near, TOKENS, names=names[1:])[names[1]]
        new = {names[1]: capture.at(lambda x: x + size * (there - x), heads=0)}
        return metric(capture.intervene(DECODER, near, OTHERS, new))

    slope = (patched(0.01) - patched(-0.01)) / 0.02
    np.testing.assert_allclose(slopes[names[1]][0], slope, rtol=0.02, atol=1e-4)
    assert abs(exact[names[1]][0] - start) > 1e-3


def direct(head, reader):
    """Returns the effect of a head on the queries of the last of two blocks."""
    names = ["block_0/attn/heads", "block_1/before", "block_1/attn/queries"]
    clean, usual = (
        capture.capture(DECODER, PARAMS_, tokens, names=names) for tokens in (TOKENS, OTHERS)
    )
    kernel = PARAMS_["block_0"]["attn"]["out"]["kernel"].reshape(2, 4, 8)
    change = (clean[names[0]] - usual[names[0]])[:, :, head] @ kernel[head]
    new = {"block_1/before": usual["block_1/before"] + change}
    queries = capture.run(DECODER, PARAMS_, OTHERS, names=names[2:], edits=new)[1][names[2]]
    edit = {names[2]: capture.at(queries, heads=reader)}
    return metric(capture.intervene(DECODER, PARAMS_, OTHERS, edit))


def test_path_patching_reaches_one_reader_only():
    pairs = jnp.array([[0, 0], [0, 1], [1, 0], [1, 1]])

    @jax.jit
    @jax.vmap
    def all_of_them(pair):
        sender, receiver = ("block_0/attn/heads", pair[0]), ("block_1/attn/queries", pair[1])
        return capture.path_patch(DECODER, PARAMS_, TOKENS, OTHERS, sender, receiver, metric)

    expected = [direct(head, reader) for head, reader in pairs]
    np.testing.assert_allclose(all_of_them(pairs), expected, atol=1e-5)
    assert np.std(expected) > 1e-4


def test_what_comes_later_sends_nothing():
    sender, receiver = ("block_1/attn/heads", 0), ("block_0/attn/queries", 0)
    with pytest.raises(UserError, match="block_1/attn/heads does not come before block_0/attn/que"):
        capture.path_patch(DECODER, PARAMS_, TOKENS, OTHERS, sender, receiver, metric)


def test_wrong_patches_are_one_line_errors():
    with pytest.raises(UserError, match=r"equal shapes, got .*\(3, 5\).*\(3, 4\)"):
        capture.patch(DECODER, PARAMS_, TOKENS, TOKENS[:, :4], "final", metric)
    with pytest.raises(UserError, match="Did you mean 'position'"):
        capture.patch(DECODER, PARAMS_, TOKENS, OTHERS, "final", metric, by=("positions",))
    with pytest.raises(UserError, match=r"must be a sequence such as .* got the string 'head'"):
        capture.patch(DECODER, PARAMS_, TOKENS, OTHERS, "final", metric, by="head")
    with pytest.raises(UserError, match="at_once must be at least 1, got 0"):
        capture.patch(DECODER, PARAMS_, TOKENS, OTHERS, "final", metric, at_once=0)
    with pytest.raises(UserError, match="Did you mean 'block_0/states'"):
        capture.patch(DECODER, PARAMS_, TOKENS, OTHERS, "block_0/state", metric)


@pytest.mark.parametrize("wrong", [lambda logits: logits[0, -1], lambda logits: logits[:, -1]])
def test_a_metric_that_forgets_a_token_is_a_one_line_error(wrong):
    arguments = DECODER, PARAMS_, TOKENS, OTHERS
    ends = ("block_0/attn/heads", 0), ("block_1/attn/queries", 0)
    for call in (
        lambda: capture.patch(*arguments, "final", wrong),
        lambda: capture.path_patch(*arguments, *ends, wrong),
        lambda: capture.attribute(*arguments, "final", wrong),
        lambda: lens.attribution(DECODER, PARAMS_, TOKENS, metric=wrong),
        lambda: patch_grid(*arguments, lambda logits_BxV: wrong(logits_BxV[:, None])),
    ):
        with pytest.raises(UserError, match=r"must return one number.* got the shape \("):
            call()


def test_one_number_for_each_example_is_a_last_axis():
    def margin(logits):
        return logits[:, -1, 3] - logits[:, -1, 5]

    found = capture.patch(DECODER, PARAMS_, TOKENS, OTHERS, "block_1/states", margin, ("position",))
    assert found["block_1/states"].shape == (5, 3)
    with pytest.raises(UserError, match=r"must return one number, got the shape \(3,\)"):
        capture.attribute(DECODER, PARAMS_, TOKENS, OTHERS, "block_1/states", margin)
