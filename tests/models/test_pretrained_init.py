"""Training from given parameters."""

import jax
import numpy as np
import pytest

import jaxformer
from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.core.settings import DataSettings
from jaxformer.models.decoder import decoder
from jaxformer.models.pretrained import tiny
from jaxformer.models.pretrained_init import from_params
from jaxformer.tasks.retrieval import Retrieval

TASK = Retrieval(max_pairs=2, vocab=8)


def test_initial_parameters_are_the_given_ones():
    model, params, _ = tiny.tiny("gpt2", 24)
    initial = from_params(model, params).init(jax.random.key(3), None)["params"]
    for path, leaf in paths.flatten(params).items():
        np.testing.assert_array_equal(paths.flatten(initial)[path], leaf)


@pytest.mark.slow  # compiles a training run
def test_frozen_weights_of_a_loaded_model_keep_their_bits():
    """Two rules train the last MLP of a published model."""
    model, params, _ = tiny.tiny("gpt2", TASK.vocab_size)
    rules = (("block_1/mlp/.*", "train"), (".*", "frozen"))
    run = jaxformer.train(
        TASK, from_params(model, params), rules, steps=3, batch_size=8, seeds=2, progress=False
    )
    before = paths.flatten(params)
    for member in (0, 1):
        for path, leaf in paths.flatten(run.member(member)).items():
            is_equal = np.array_equal(leaf, before[path])
            assert is_equal == (not path.startswith("block_1/mlp/")), path
    logits = model.apply({"params": run.params}, np.zeros((1, 4), np.int32))
    assert np.isfinite(logits).all()


def test_a_run_folder_refuses_other_initial_parameters(tmp_path):
    sizes = dict(vocab_size=TASK.vocab_size, length=TASK.length, mlp_width=8)
    model = decoder(width=8, layers=1, heads=2, **sizes)
    one, other = (model.init(jax.random.key(i), TASK.blank())["params"] for i in (0, 1))
    data = DataSettings(test_size=8, validation_size=8)
    options = dict(steps=2, batch_size=4, data=data, workdir=tmp_path, progress=False)
    first = jaxformer.train(TASK, from_params(model, one), **options)
    again = jaxformer.train(TASK, from_params(model, one), **options)
    jax.tree.map(np.testing.assert_array_equal, again.params, first.params)
    with pytest.raises(UserError, match=r"another config: 1 fields differ, such as model\.params"):
        jaxformer.train(TASK, from_params(model, other), **options)
