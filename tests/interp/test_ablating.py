"""`capture.ablate`: each part removed, alone or in groups, equals an edit of the whole network."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer import capture
from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.interp.capture import replaced
from tests.interp.test_blocks import DIFFERENT, network
from tests.interp.test_capture import DECODER, OTHERS, TOKENS, params_of

BLOCK_0 = r"block_0/(attn/heads|mlp/output)"


def margin(logits):
    return logits[:, 3, 3] - logits[:, 3, 5]


def removed(model, params, tokens, addresses, position=None, head=None, how="zero", others=None):
    """Returns the margins of a whole run in which some parts are replaced."""
    kept = {} if how == "zero" else capture.capture(model, params, tokens, names=addresses)
    more = {} if others is None else capture.capture(model, params, others, names=addresses)

    def new(address):
        if how == "zero":
            return 0.0
        x = kept[address]
        if how == "resample":
            return jnp.roll(x, -1, 0) if others is None else more[address]
        return jnp.broadcast_to(((x + more.get(address, x)) / 2).mean(0), x.shape)

    edits = {
        address: capture.at(
            new(address), heads=head if "heads" in address else None, positions=position
        )
        for address in addresses
    }
    return margin(capture.intervene(model, params, tokens, edits))


@pytest.mark.parametrize(
    "name", [x if x == "decoder" else pytest.param(x, marks=pytest.mark.slow) for x in DIFFERENT]
)
def test_each_removal_equals_an_edit_of_the_whole_network(name):
    model, params = network(name)
    last = model.spec.layers - 1
    arguments = model, params, TOKENS

    pattern = r"block_\d+/attn/heads"
    grid = capture.ablate(*arguments, pattern, margin, by=["head"], how="zero", at_once=3)
    assert [*grid] == [f"block_{i}/attn/heads" for i in range(model.spec.layers)]
    for block, head in ((0, 1), (last, 0)):
        address = f"block_{block}/attn/heads"
        expected = removed(*arguments, [address], head=head)
        np.testing.assert_allclose(grid[address][head], expected, atol=2e-5)
    assert np.ptp(np.stack([*grid.values()])) > 0.01

    how: dict[str, Any] = dict(how="resample", others=OTHERS)
    parts = capture.ablate(*arguments, BLOCK_0, margin, by=["position"], **how)
    for address, found in parts.items():
        assert found.shape == TOKENS.T.shape
        expected = removed(*arguments, [address], 2, **how)
        np.testing.assert_allclose(found[2], expected, atol=2e-5)
    if model.spec.causal:  # no answer reads later positions
        np.testing.assert_allclose(
            found[4], margin(model.apply({"params": params}, TOKENS)), atol=2e-5
        )


@pytest.mark.parametrize("runs_by_block", [True, False])
def test_groups_go_together_and_means_are_over_all_prompts(monkeypatch, runs_by_block):
    if not runs_by_block:  # as a user's own module
        monkeypatch.setattr(replaced, "is_divisible", lambda model: False)
    arguments = DECODER, params_of("decoder"), TOKENS
    done = []
    groups = {
        "head": "block_1/attn/head_1",
        "block 1": ["block_1/attn/heads", "block_1/mlp/output"],
        "across": [r"block_0/attn/head_[01]", "block_1/mlp/output"],
    }
    for others in (None, OTHERS):
        how: dict[str, Any] = dict(how="mean", others=others)
        together = capture.ablate(
            *(*arguments, groups, margin), **how, at_once=2, progress=lambda *x: done.append(x)
        )
        expected = {
            "head": removed(*arguments, ["block_1/attn/heads"], head=1, **how),
            "block 1": removed(*arguments, groups["block 1"], **how),
            "across": removed(*arguments, ["block_0/attn/heads", "block_1/mlp/output"], **how),
        }
        assert [*together] == [*groups]
        for name, values in expected.items():
            np.testing.assert_allclose(together[name], values, atol=2e-5, err_msg=name)
    assert done == [(2, 3), (3, 3)] * 2
    rolled = capture.ablate(*arguments, "block_1/attn/heads", margin, by=["head"], how="resample")
    expected = removed(*arguments, ["block_1/attn/heads"], head=1, how="resample")
    np.testing.assert_allclose(rolled["block_1/attn/heads"][1], expected, atol=2e-5)


def test_a_removed_attention_writes_no_bias_either():
    model, params = network("gpt2")
    bias = "block_0/attn/out/bias"
    params = paths.replace(params, {bias: jnp.arange(model.spec.width) / 4})
    address = "block_0/attn/output"
    grid = capture.ablate(model, params, TOKENS, address, margin, how="zero")
    np.testing.assert_allclose(grid[address], removed(model, params, TOKENS, [address]), atol=2e-5)


def test_any_activation_can_be_removed():
    """Queries and scores of earlier tokens are no part of a pass over later ones."""
    arguments = DECODER, params_of("decoder"), TOKENS
    pattern = r"block_1/attn/(turned_queries|scores|weights)|final"
    found = capture.ablate(*arguments, pattern, margin, by=["position"], how="zero")
    assert len(found) == 4
    for address, values in found.items():
        expected = removed(*arguments, [address], 2)
        np.testing.assert_allclose(values[2], expected, atol=2e-5, err_msg=address)


@pytest.mark.parametrize(
    "options, problem",
    [
        ({"how": "means"}, "Did you mean 'mean'"),
        ({"by": "head"}, "`by` must be a sequence such as"),
        ({"by": ["heads"]}, "Did you mean 'head'"),
        ({"parts": "block_0/attn/haeds"}, "Did you mean 'block_0/attn/heads'"),
        (
            {"parts": {"a": "block_0/attn/head_7"}},
            "no activation or head is .*head_7', of the group 'a'",
        ),
        ({"parts": {"a": []}}, "the group 'a' has no parts"),
        ({"parts": {"a": "block_0/mlp/output"}, "by": ["head"]}, "leave by out"),
        ({"prompts": TOKENS[:1]}, "needs two prompts or more, got one"),
        ({"others": TOKENS[:, :4]}, "must have equal shapes"),
        ({"at_once": 0}, "at_once must be at least 1"),
        ({"metric": lambda logits: logits}, "must return one number"),
    ],
)
def test_wrong_arguments_are_one_line_errors(options, problem):
    given = {"prompts": TOKENS, "parts": BLOCK_0, "metric": margin} | options
    prompts, parts, metric = (given.pop(name) for name in ("prompts", "parts", "metric"))
    with pytest.raises(UserError, match=problem) as error:
        capture.ablate(DECODER, params_of("decoder"), prompts, parts, metric, **given)
    assert "\n" not in str(error.value)
