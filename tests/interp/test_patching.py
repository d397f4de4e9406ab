"""Patching compared with one intervention at a time."""

import sys
from types import SimpleNamespace
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxformer
from jaxformer import capture
from jaxformer.core.errors import UserError
from jaxformer.interp import blocks, circuits, lens
from jaxformer.interp.answers import Answers
from jaxformer.interp.capture import replaced
from jaxformer.models.activation_points import tap
from jaxformer.models.decoder import decoder
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


def test_one_program_for_all_prompts_and_metrics(monkeypatch):
    traced = []

    def counted(*arguments):
        traced.append(arguments[0])
        return blocks.block_output(*arguments)

    monkeypatch.setattr(replaced, "block_output", counted)
    model = decoder(**vars(DECODER.spec) | {"mlp_width": 20})  # which no other test uses
    params = model.init(jax.random.key(0), TOKENS)["params"]
    for shift in (0, 1):

        def shifted(logits, shift=shift):
            return metric(logits) + shift

        tokens = (TOKENS + shift) % 11
        capture.patch(model, params, tokens, OTHERS, r"block_\d/states", shifted, ("position",))
        assert len(traced) == 2  # for both blocks and both calls: one for each first token


PATCHED = "block_0/attn/heads"
wanted = 3  # what `reads_a_global` reads


def reads_a_global(logits):
    return logits[:, -1, wanted]


def patched_value(logits_to_number, address=PATCHED):
    """Returns the metric of one patch, by `capture.patch` and by an intervention."""
    arguments = DECODER, PARAMS_, TOKENS, OTHERS
    clean = capture.capture(DECODER, PARAMS_, TOKENS, names=[address])[address]
    logits = capture.intervene(DECODER, PARAMS_, OTHERS, {address: clean})
    return capture.patch(*arguments, address, logits_to_number)[address], logits


def test_a_metric_that_reads_a_changed_variable_gives_the_new_answer(monkeypatch):
    for token in (3, 7):
        monkeypatch.setattr(sys.modules[__name__], "wanted", token)
        value, logits = patched_value(reads_a_global)
        np.testing.assert_allclose(value, logits[:, -1, token], atol=1e-5)


def test_a_metric_that_reads_a_list_changed_in_place_gives_the_new_answer():
    tokens = [3]

    def chosen(logits):
        return logits[:, -1, jnp.array(tokens)].sum(-1)

    for _ in range(2):
        value, logits = patched_value(chosen)
        np.testing.assert_allclose(value, logits[:, -1, tokens].sum(-1), atol=1e-5)
        tokens.append(7)


def test_a_metric_may_close_over_an_array_that_is_changed_in_place():
    weights = np.arange(11, dtype=np.float32)

    def weighted(logits):
        return logits[:, -1] @ weights

    for _ in range(2):
        value, logits = patched_value(weighted)
        np.testing.assert_allclose(value, logits[:, -1] @ weights, rtol=1e-4)
        weights[:5] = 0


def test_a_metric_with_a_side_effect_is_called_in_each_call():
    calls = []

    def counted(logits):
        calls.append(1)
        return logits[0, -1, 3]

    for _ in range(2):
        calls.clear()
        capture.patch(DECODER, PARAMS_, TOKENS, OTHERS, PATCHED, counted, by=("head",))
        assert calls


def test_patch_and_attribute_agree_about_another_pair_of_answers(monkeypatch):
    """Two prompts that are almost equal in what is patched, so that the first order suffices."""
    address = "block_1/mlp/output"
    near = PARAMS_ | {"block_1": jax.tree.map(lambda x: 0.3 * x, PARAMS_["block_1"])}
    arguments = DECODER, near, TOKENS, OTHERS, address

    def margin(logits):
        return logits[:, -1, wanted].mean()

    for token in (3, 7):
        monkeypatch.setattr(sys.modules[__name__], "wanted", token)
        unpatched = margin(DECODER.apply({"params": near}, OTHERS))
        exact = capture.patch(*arguments, margin)[address] - unpatched
        np.testing.assert_allclose(exact, capture.attribute(*arguments, margin)[address], rtol=0.05)


class ReadsAGlobal(nn.Module):
    """A user's module whose output depends on a variable outside of it."""

    spec = SimpleNamespace(vocab_size=11, length=5, causal=True)

    @nn.compact
    def __call__(self, tokens_BxT, positions_BxK=None):
        embedded = tap(self, "embedded", nn.Embed(11, 8)(tokens_BxT))
        return nn.Dense(11)(embedded) * scale_of_module


scale_of_module = 1.0


def test_a_module_of_a_user_that_reads_a_changed_variable_is_computed_anew(monkeypatch):
    module = ReadsAGlobal()
    params = module.init(jax.random.key(0), TOKENS)["params"]
    arguments = module, params, TOKENS, OTHERS, "embedded", reads_a_global
    once = capture.patch(*arguments)["embedded"]
    monkeypatch.setattr(sys.modules[__name__], "scale_of_module", 2.0)
    np.testing.assert_allclose(capture.patch(*arguments)["embedded"], 2 * once, rtol=1e-5)
    once = lens.logit_lens(module, params, TOKENS, names="embedded")["embedded"]
    monkeypatch.setattr(sys.modules[__name__], "scale_of_module", 1.0)
    again = lens.logit_lens(module, params, TOKENS, names="embedded")["embedded"]
    np.testing.assert_allclose(again, once / 2, rtol=1e-5)


def test_a_wrapped_module_that_reads_a_changed_variable_is_computed_anew(monkeypatch):
    wrapped = jaxformer.wrap(ReadsAGlobal(), vocab_size=11, length=5)
    params = wrapped.init(jax.random.key(0), TOKENS)["params"]
    arguments = wrapped, params, TOKENS, OTHERS, "Embed_0/output", reads_a_global
    once = capture.patch(*arguments)["Embed_0/output"]
    monkeypatch.setattr(sys.modules[__name__], "scale_of_module", 2.0)
    np.testing.assert_allclose(capture.patch(*arguments)["Embed_0/output"], 2 * once, rtol=1e-5)


@pytest.mark.parametrize("address", ["logits", "final", "block_1/states", "embedded"])
def test_a_patch_before_or_after_the_read_out_is_an_intervention(address):
    value, logits = patched_value(metric, address)
    np.testing.assert_allclose(value, metric(logits), atol=1e-5)


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


@pytest.mark.parametrize("token", [11, -1, 2**40 + 3])
def test_every_look_inside_refuses_tokens_outside_of_the_vocabulary(token, tmp_path):
    wrong = np.array(TOKENS, np.int64)
    wrong[1, 2] = token
    model: Any = (DECODER, PARAMS_)
    ends = ("block_0/attn/heads", 0), ("block_1/attn/queries", 0)
    answers = Answers(*np.array([[[4]] * 3, [[1]] * 3, [[2]] * 3, [[1.0]] * 3]).astype(int))
    for prompts in ((wrong, OTHERS), (TOKENS, wrong)):
        for call in (
            lambda prompts: capture.patch(*model, *prompts, "final", metric),
            lambda prompts: capture.attribute(*model, *prompts, "final", metric),
            lambda prompts: capture.path_patch(*model, *prompts, *ends, metric),
            lambda prompts: circuits.Wiring(*model, *prompts, answers),
        ):
            with pytest.raises(UserError, match=f"must be from 0 to 10.*got .*{token}"):
                call(prompts)
    for call in (
        lambda: capture.gradients(*model, wrong, names="final", metric=metric),
        lambda: capture.ablate(*model, wrong, "final", metric),
        lambda: capture.store(tmp_path, *model, wrong, ["final"]),
    ):
        with pytest.raises(UserError, match=f"must be from 0 to 10.*got .*{token}"):
            call()


@pytest.mark.parametrize("wrong", [lambda logits: logits[0, -1], lambda logits: logits[:, -1]])
def test_a_metric_that_forgets_a_token_is_a_one_line_error(wrong):
    arguments = DECODER, PARAMS_, TOKENS, OTHERS
    ends = ("block_0/attn/heads", 0), ("block_1/attn/queries", 0)
    for call in (
        lambda: capture.patch(*arguments, "final", wrong),
        lambda: capture.path_patch(*arguments, *ends, wrong),
        lambda: capture.attribute(*arguments, "final", wrong),
        lambda: lens.attribution(DECODER, PARAMS_, TOKENS, metric=wrong),
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
