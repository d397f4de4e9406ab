"""A network that runs block by block equals the whole network."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer import capture
from jaxformer.interp import patching
from jaxformer.models.pretrained.tiny import tiny
from tests.interp.test_capture import DECODER, MODELS, OTHERS, PARAMS, TOKENS

CLEAN = jnp.concatenate([OTHERS[:, :2], TOKENS[:, 2:]], 1)  # they differ from token 2 on


def last_margin(logits_BxV):
    return logits_BxV[:, 3] - logits_BxV[:, 5]


def networks():
    yield DECODER, PARAMS["decoder"]
    for name in ("encoder", "recall"):
        yield MODELS[name], PARAMS[name]
    for family in ("llama", "gemma2"):  # grouped queries; windows, caps and two norms of a branch
        model, params, _ = tiny(family, 11)
        yield model, jax.tree.map(jnp.asarray, params)


def test_grids_of_patches_equal_whole_runs():
    for model, params in networks():
        for site in ("states", "before"):
            grid = patching.patch_grid(
                model, params, CLEAN, OTHERS, last_margin, site=site, read_at=3
            )
            whole = capture.patch(
                *(model, params, CLEAN, OTHERS, rf"block_\d+/{site}"),
                lambda logits: last_margin(logits[:, 3]),
                by=("position",),
            )
            expected = np.stack(list(whole.values())).transpose(2, 0, 1)
            np.testing.assert_allclose(grid, expected, atol=2e-5, err_msg=type(model).__name__)
            assert np.ptp(grid) > 0.01
            if model.spec.causal:  # equal states of equal tokens, and states that no answer reads
                assert (grid[:, :, :2] == grid[:, :1, :1]).all()
                assert (grid[:, :, 4:] == grid[:, :1, :1]).all()
