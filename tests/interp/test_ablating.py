"""`ablate_grid`: every part removed alone, equal to an intervention in the whole network."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer import capture
from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.interp.ablating import ablate_grid
from jaxformer.models.attention_paths import attention_paths
from tests.interp.test_blocks import DIFFERENT, last_margin, network
from tests.interp.test_capture import DECODER, OTHERS, TOKENS, params_of


def removed(model, params, tokens, addresses, position=None, head=None, by="zero", others=None):
    """Returns the margins at token 3 of a whole run in which some parts are replaced."""
    kept = {} if by == "zero" else capture.capture(model, params, tokens, names=addresses)
    more = {} if others is None else capture.capture(model, params, others, names=addresses)

    def new(address):
        if by == "zero":
            return 0.0
        x = kept[address]
        if by == "resample":
            return jnp.roll(x, -1, 0) if others is None else more[address]
        return jnp.broadcast_to(((x + more.get(address, x)) / 2).mean(0), x.shape)

    edits = {
        address: capture.at(
            new(address), heads=head if "heads" in address else None, positions=position
        )
        for address in addresses
    }
    return last_margin(capture.intervene(model, params, tokens, edits)[:, 3])


@pytest.mark.parametrize(
    "name", [x if x == "decoder" else pytest.param(x, marks=pytest.mark.slow) for x in DIFFERENT]
)
def test_each_removal_equals_an_intervention_in_the_whole_network(name):
    model, params = network(name)
    last = model.spec.layers - 1
    arguments = model, params, TOKENS

    grid = ablate_grid(*arguments, last_margin, by=["head"], read_at=3)
    assert grid.shape == (len(TOKENS), model.spec.layers, model.spec.heads)
    for block, head in ((0, 1), (last, 0)):
        expected = removed(*arguments, [f"block_{block}/attn/heads"], head=head)
        np.testing.assert_allclose(grid[:, block, head], expected, atol=2e-5)
    assert np.ptp(grid) > 0.01

    parts = ablate_grid(
        *arguments,
        last_margin,
        by=["part", "position"],
        read_at=3,
        ablation="resample",
        others=OTHERS,
    )
    assert parts.shape == (len(TOKENS), model.spec.layers, 2, TOKENS.shape[1])
    for part, address in enumerate(("attn/heads", "mlp/output")):
        expected = removed(*arguments, [f"block_0/{address}"], 2, by="resample", others=OTHERS)
        np.testing.assert_allclose(parts[:, 0, part, 2], expected, atol=2e-5)
    if model.spec.causal:  # no answer reads later positions
        assert (parts[..., 4:] == parts[:, :1, :1, 4:5]).all()


def test_both_parts_go_at_one_position_and_means_are_over_all_prompts():
    arguments = DECODER, params_of("decoder"), TOKENS
    done = []
    both = ablate_grid(
        *(*arguments, last_margin), by=["position"], read_at=3, progress=lambda *x: done.append(x)
    )
    assert both.shape == (len(TOKENS), DECODER.spec.layers, TOKENS.shape[1])
    expected = removed(*arguments, ["block_1/attn/heads", "block_1/mlp/output"], 3)
    np.testing.assert_allclose(both[:, 1, 3], expected, atol=2e-5)
    assert done == [(i + 1, DECODER.spec.layers) for i in range(DECODER.spec.layers)]
    for others in (None, OTHERS):
        means = ablate_grid(
            *(*arguments, last_margin), by=["part"], read_at=3, ablation="mean", others=others
        )
        expected = removed(*arguments, ["block_0/mlp/output"], by="mean", others=others)
        np.testing.assert_allclose(means[:, 0, 1], expected, atol=2e-5)
    rolled = ablate_grid(*arguments, last_margin, read_at=3, ablation="resample")
    expected = removed(*arguments, ["block_1/attn/heads"], head=1, by="resample")
    np.testing.assert_allclose(rolled[:, 1, 1], expected, atol=2e-5)


def test_a_removed_attention_writes_no_bias_either():
    model, params = network("gpt2")
    bias = "block_0/attn/out/bias"
    params = paths.replace(params, {bias: jnp.arange(model.spec.width) / 4})
    grid = ablate_grid(model, params, TOKENS, last_margin, by=["part"], read_at=3)
    expected = removed(model, params, TOKENS, ["block_0/attn/output"])
    np.testing.assert_allclose(grid[:, 0, 0], expected, atol=2e-5)


@pytest.mark.parametrize(
    "options, problem",
    [
        ({"ablation": "means"}, "Did you mean 'mean'"),
        ({"by": "head"}, "`by` must be a sequence such as"),
        ({"by": ["head", "part"]}, "not both of the first two"),
        ({"by": []}, "needs 'head', 'part' or 'position'"),
        ({"prompts": TOKENS[:1], "ablation": "mean"}, "needs two prompts or more, got one"),
        ({"others": TOKENS[:, :4]}, "must have one shape"),
        ({"read_at": 9}, "read_at must be from -5 to 4, got 9"),
        ({"score": lambda logits: logits}, "one number for each of the 3 prompts"),
    ],
)
def test_wrong_arguments_are_one_line_errors(options, problem):
    options = {"prompts": TOKENS, "score": last_margin} | options
    prompts, score = options.pop("prompts"), options.pop("score")
    with pytest.raises(UserError, match=problem) as error:
        ablate_grid(DECODER, params_of("decoder"), prompts, score, **options)
    assert "\n" not in str(error.value)


def test_a_model_whose_blocks_cannot_run_alone_is_refused():
    model = attention_paths(heads=(2, 2), width=4)
    params = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 3, 4)))["params"]
    with pytest.raises(UserError, match="cannot be run alone"):
        ablate_grid(model, params, TOKENS, last_margin)
