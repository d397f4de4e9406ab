"""Accuracies without heads: which heads are cut, and what a cut changes."""

import jax
import numpy as np
import pytest

import jaxformer
from experiments.recipes import head_cuts
from experiments.recipes.inside import look_inside
from jaxformer import build, surgery

INDUCTION = [np.array([0.9, 0.1]), np.array([0.2, np.nan, 0.5, 0.3]), np.array([0.4, 0.1])]


def test_the_heads_of_a_cut_lie_in_the_later_layer_with_the_strongest_head():
    heads = {cut: head_cuts.heads_of(cut, INDUCTION, 0.25) for cut in head_cuts.HEAD_CUTS}
    assert heads == {
        "strongest head cut": {"block_1/attn": [2]},
        "answering heads cut": {"block_1/attn": [2, 3]},
        "weakest head cut": {"block_1/attn": [1]},
        "all heads cut": {"block_1/attn": [0, 1, 2, 3]},
    }


def test_an_accuracy_is_that_of_the_network_without_these_heads(finished):
    model, params, config = jaxformer.load(finished)
    setup = build.phases(config)[0].setup
    test = jax.device_get(setup.data.heldout()).test
    inside = look_inside(model, params, config)
    found = head_cuts.accuracies(setup, {3: params}, {3: inside}, test)[3]
    assert [*found] == [f"accuracy/{cut}" for cut in head_cuts.HEAD_CUTS]
    for cut in head_cuts.HEAD_CUTS:
        scores = inside.scores["induction"], inside.scores["induction_by_chance"]
        without = surgery.ablate_heads(params, head_cuts.heads_of(cut, *scores), 4)
        likeliest = np.asarray(model.apply({"params": without}, test.inputs)).argmax(-1)
        counts = np.asarray(test.weights) > 0
        expected = (likeliest == np.asarray(test.targets))[counts].mean()
        assert found[f"accuracy/{cut}"].mean == pytest.approx(expected, abs=1e-6)
    assert len({mean.mean for mean in found.values()}) > 1


def test_a_network_of_one_layer_has_no_cut(finished):
    model, params, config = jaxformer.load(finished)
    inside = look_inside(model, params, config)
    one = inside._replace(maps=inside.maps[:1])
    setup = build.phases(config)[0].setup
    assert head_cuts.accuracies(setup, {0: params}, {0: one}, None) == {0: {}}
