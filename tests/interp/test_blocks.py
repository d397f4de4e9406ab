"""A network that runs block by block equals the whole network."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer import capture
from jaxformer.core.errors import UserError
from jaxformer.interp import patching
from jaxformer.interp.blocks import Blocks
from jaxformer.models.attention_paths import attention_paths
from jaxformer.models.pretrained.tiny import tiny
from tests.interp.test_capture import DECODER, MODELS, OTHERS, TOKENS, params_of
from tests.models.tiny_configs import CONFIGS

CLEAN = jnp.concatenate([OTHERS[:, :2], TOKENS[:, 2:]], 1)  # they differ from token 2 on


def last_margin(logits_BxV):
    return logits_BxV[:, 3] - logits_BxV[:, 5]


def network(name):
    if name in MODELS:
        return MODELS[name], params_of(name)
    model, params, _ = tiny(CONFIGS[name], 11)
    return model, jax.tree.map(jnp.asarray, params)


# Causal, not causal, and grouped queries with windows, caps and two norms of a branch.
DIFFERENT = ["decoder", "encoder", "gemma2"]


@pytest.mark.parametrize(
    "names", [DIFFERENT, pytest.param(["recall", "llama"], marks=pytest.mark.slow)]
)
def test_grids_of_patches_equal_whole_runs(names):
    for model, params in map(network, names):
        whole = capture.patch(
            *(model, params, CLEAN, OTHERS, r"block_\d+/(before|states)"),
            lambda logits: last_margin(logits[:, 3]),
            by=("position",),
        )
        for site in ("states", "before"):
            grid = patching.patch_grid(
                model, params, CLEAN, OTHERS, last_margin, site=site, read_at=3
            )
            rows = [value for address, value in whole.items() if address.endswith(site)]
            expected = np.stack(rows).transpose(2, 0, 1)
            np.testing.assert_allclose(grid, expected, atol=2e-5, err_msg=type(model).__name__)
            assert np.ptp(grid) > 0.01
            if model.spec.causal:  # equal states of equal tokens, and states that no answer reads
                assert (grid[:, :, :2] == grid[:, :1, :1]).all()
                assert (grid[:, :, 4:] == grid[:, :1, :1]).all()


def test_other_models_run_as_a_whole_and_bad_prompts_end_with_a_one_line_error(monkeypatch):
    arguments = DECODER, params_of("decoder"), CLEAN
    expected = patching.patch_grid(*arguments, OTHERS, last_margin)
    equal_prompts = patching.patch_grid(*arguments, CLEAN, last_margin)
    assert (equal_prompts == equal_prompts[:, :1, :1]).all()  # no patch changes anything
    for problem, options in (
        ("one shape", {"corrupted": OTHERS[:, :4]}),
        ("read_at must be from -5 to 4, got 5", {"read_at": 5}),
        ("Did you mean 'states'", {"site": "state"}),
    ):
        with pytest.raises(UserError, match=problem):
            patching.patch_grid(
                *arguments, **({"corrupted": OTHERS, "score": last_margin} | options)
            )
    with pytest.raises(UserError, match="the blocks of AttentionPaths cannot be run alone"):
        Blocks(attention_paths(heads=(2, 2), width=4), {})
    monkeypatch.setattr(patching, "is_divisible", lambda model: False)
    with pytest.warns(UserWarning, match="Decoder runs as a whole for each patch"):
        whole = patching.patch_grid(*arguments, OTHERS, last_margin)
    np.testing.assert_allclose(whole, expected, atol=2e-5)


def test_many_prompts_run_in_chunks_of_one_size():
    for first, stop, tokens, size in (
        (0, 14, 14, 4),
        (9, 14, 5, 5),
        (0, 40, 1000, 5),
        (3, 3, 9, 0),
    ):
        chunks = patching.position_chunks(first, stop, tokens, has_memory=True)
        covered = {int(p) for _, positions in chunks for p in positions}
        assert covered == set(range(first, stop))
        assert all(start <= positions.min() for start, positions in chunks)
        assert max((len(positions) for _, positions in chunks), default=0) == size
        assert len({(start, len(positions)) for start, positions in chunks}) <= patching.MAX_CHUNKS
