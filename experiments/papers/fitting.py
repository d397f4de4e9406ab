"""Short fits inside a figure: the engine of every other run, without a folder or an evaluation."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from jaxformer.core.partition import Partition
from jaxformer.core.settings import DataSettings, DeviceSettings, TrainSettings
from jaxformer.io.run_folder import Memory
from jaxformer.tasks.source import make_source
from jaxformer.tasks.task import Batch
from jaxformer.training.population import population
from jaxformer.training.run import train_phases
from jaxformer.training.setup import Phase, make_setup


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
    settings = TrainSettings(batch_size=batch_size, steps=steps, log_every=1, eval_every=0)
    with jax.enable_x64(False):
        members = population(seed, n_seeds, rates)
        data = make_source(task, DataSettings(test_size=test_size, validation_size=1), batch_size)
        nouns = (task, model, partition, tx, data, members)
        setup = make_setup(*nouns, settings, DeviceSettings())
        trained = train_phases([Phase(steps, setup)], settings, Memory({}), progress=False)
        start = setup.create()
        initial = Partition.merge(start.trainable, start.frozen)
        losses_TxM = np.stack([row["loss"] for row in trained.session.workdir.rows()])
        end_M = np.asarray(trained.state.diverged_at)
        lost_TxM = (end_M >= 0)[None] & (np.arange(steps)[:, None] >= end_M[None])
        losses_TxM = np.where(lost_TxM, np.nan, losses_TxM)
        shape = (len(members.rates), n_seeds, steps)
        return Fitted(
            losses_TxM.T.reshape(shape),
            jax.device_get(initial),
            jax.device_get(trained.params),
            trained.session.heldout.test,
        )
