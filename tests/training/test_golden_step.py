"""One training step of each model, compared with golden numbers.

A failure means that a default changed. Existing records then belong to another experiment and must
be made again.
"""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.cli import flags
from jaxformer import build
from jaxformer.core.partition import Partition

GOLDEN = Path(__file__).parents[1] / "reference/training_step.json"
CONFIGS = {
    "decoder": "configs/mixit/retrieval.py:variant=frozen_qk,scale=tiny",
    "mixit": "configs/mixit/retrieval.py:variant=mixit,scale=tiny",
    "encoder": "configs/two_failure_modes/fig1_losses.py:scale=tiny",
    "recall": "configs/associations/recall.py:scale=tiny",
}


# The golden numbers of configs/mixit were made with these settings instead of those of the configs.
MIXIT_SETTINGS = {"data.split": "redraw", "model.mixing_scale": "head"}


def step_of(name):
    """Returns loss and norms of gradient, update and parameters after one step."""
    settings = MIXIT_SETTINGS if "/mixit/" in CONFIGS[name] else {}
    setup = build.phases(flags.load_with_overrides(CONFIGS[name], settings))[0].setup
    batch_at = setup.batch_at(jnp.zeros(1, jnp.uint32))

    @jax.jit
    def quantities(before):
        after, metrics = setup.step()(before, batch_at(0))
        update = jax.tree.map(lambda a, b: a - b, after.trainable, before.trainable)
        params = Partition.merge(after.trainable, after.frozen)
        return {
            "loss": metrics["loss"][0],
            "gradient": metrics["gradient_norm"][0],
            "update": optax.tree.norm(jax.tree.map(lambda x: x[0], update)),
            "parameters": optax.tree.norm(jax.tree.map(lambda x: x[0], params)),
        }

    return quantities(setup.create())


@pytest.mark.parametrize("name", CONFIGS)
def test_a_step_has_its_golden_numbers(name):
    golden = json.loads(GOLDEN.read_text())[name]
    for quantity, value in step_of(name).items():
        np.testing.assert_allclose(
            value, golden[quantity], rtol=2e-5, err_msg=f"{name}: {quantity}"
        )
