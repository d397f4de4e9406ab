"""One training step of each model, as numbers.

A change here means that configs which leave something at its default now mean something else:
records of before the change are then of another experiment, and must be made again.
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


# The numbers of the configs in configs/mixit are those of these two settings, which are not the
# ones that these configs have.
SAID = {"data.split": "redraw", "model.mixing_scale": "head"}


def step_of(name):
    """Loss, gradient, update and parameters after one step, each as one number."""
    said = SAID if "/mixit/" in CONFIGS[name] else {}
    setup = build.phases(flags.configured(CONFIGS[name], said))[0].setup
    before = setup.create()
    batch_at = setup.batch_at(jnp.zeros(1, jnp.uint32))
    after, metrics = jax.jit(lambda state: setup.step()(state, batch_at(0)))(before)
    update = jax.tree.map(lambda a, b: a - b, after.trainable, before.trainable)
    params = Partition.merge(after.trainable, after.frozen)
    return {
        "loss": float(metrics["loss"][0]),
        "gradient": float(metrics["gradient_norm"][0]),
        "update": float(optax.global_norm(jax.tree.map(lambda x: x[0], update))),
        "parameters": float(optax.global_norm(jax.tree.map(lambda x: x[0], params))),
    }


@pytest.mark.parametrize("name", CONFIGS)
def test_a_step_is_what_it_was(name):
    golden = json.loads(GOLDEN.read_text())[name]
    for quantity, value in step_of(name).items():
        np.testing.assert_allclose(
            value, golden[quantity], rtol=2e-5, err_msg=f"{name}: {quantity}"
        )
