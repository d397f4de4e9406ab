"""A network that runs block by block equals the whole network."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer import capture
from jaxformer.core.errors import UserError
from jaxformer.interp.blocks import Blocks
from jaxformer.interp.capture import replaced
from jaxformer.models.attention_paths import attention_paths
from jaxformer.models.pretrained.tiny import tiny
from tests.interp.test_capture import MODELS, OTHERS, TOKENS, params_of
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
def test_patches_of_some_blocks_and_tokens_equal_whole_runs(names, monkeypatch):
    def margin(logits_BxTxV):
        return last_margin(logits_BxTxV[:, 3])

    for model, params in map(network, names):
        arguments = model, params, CLEAN, OTHERS, r"block_\d+/(before|states|attn/heads)", margin
        found = capture.patch(*arguments, by=("position",))
        with monkeypatch.context() as patched:
            patched.setattr(replaced, "is_divisible", lambda model: False)
            whole = capture.patch(*arguments, by=("position",))
        assert [*found] == [*whole]
        for address, values in whole.items():
            np.testing.assert_allclose(found[address], values, atol=2e-5, err_msg=address)
            assert np.ptp(values) > 0.01


def test_few_programs_serve_all_first_tokens():
    """Cases are computed from few tokens on, none of them later than its own."""
    model, params = network("decoder")
    new = {"block_1/states": jnp.zeros((3, 5, model.spec.width))}
    cases = [{"block_1/states": [replaced.Where(position=p)]} for p in (4, 2, 0, 3, 1)]
    for chunk_tokens, n_starts in ((1, replaced.MAX_STARTS), (1000, 1)):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(replaced, "CHUNK_TOKENS", chunk_tokens)
            runs = replaced._ByBlock(model, params, (TOKENS,), new, cases, 16, 0)
            parts = runs._parts()
        assert len(parts) == n_starts
        assert sorted(case for _, part in parts for case in part) == [0, 1, 2, 3, 4]
        assert all(start <= runs.first[part].min() for start, part in parts)


def test_blocks_that_cannot_run_alone_are_refused():
    with pytest.raises(UserError, match="the blocks of AttentionPaths cannot be run alone"):
        Blocks(attention_paths(heads=(2, 2), width=4), {})
