"""Short fits inside a figure: the step and the loop of every other run, without their record."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxformer.partition import Partition
from jaxformer.tasks.source import Source
from jaxformer.tasks.task import Batch
from jaxformer.training.loop import fit
from jaxformer.training.population import population
from jaxformer.training.step import create, make_step


class Fitted(NamedTuple):
    """What is left of a fit, by member: learning rates slowest, then seeds."""

    losses_RxSxT: np.ndarray  # (rates, seeds, steps); of a diverged member nan from there on
    initial: Any  # parameters; the leading axis is that of the members
    params: Any
    test: Batch


def fitted(
    model,
    task,
    partition: Partition,
    tx: optax.GradientTransformation,
    *,
    rates: Sequence[float],
    seed: int,
    n_seeds: int,
    steps: int,
    batch_size: int,
    test_size: int = 1,
) -> Fitted:
    """Every seed at every rate, in one program; in float32, whatever surrounds it."""
    with jax.enable_x64(False):
        members = population(seed, n_seeds, rates)
        source = Source(task, jax.random.key(12345), batch_size, 0, test_size, 1)
        heldout = jax.device_get(source.heldout())
        avoid, keys, losses = jnp.asarray(heldout.fingerprints), members.data_keys(), []

        def apply(params, tokens, positions):
            return model.apply({"params": params}, tokens, positions)

        def init(key):
            return model.init(key, jnp.zeros((1, 1), jnp.int32))["params"]

        def batch_at(step):
            return jax.vmap(lambda key: source.batch_at(key, step, avoid))(keys)

        state = create(init, partition, tx, members.init_keys(), members.learning_rates())
        initial = jax.device_get(Partition.merge(state.trainable, state.frozen))
        state = fit(
            state,
            make_step(apply, task, tx, "map"),
            batch_at,
            steps=steps,
            record=lambda first, metrics: losses.append(metrics["loss"]),
        )
        losses_TxM, end_M = np.concatenate(losses), np.asarray(state.diverged_at)
        lost_TxM = (end_M >= 0)[None] & (np.arange(steps)[:, None] >= end_M[None])
        losses_TxM = np.where(lost_TxM, np.nan, losses_TxM)
        params = Partition.merge(state.trainable, state.frozen)
    shape = (len(members.rates), n_seeds, steps)
    return Fitted(losses_TxM.T.reshape(shape), initial, jax.device_get(params), heldout.test)
