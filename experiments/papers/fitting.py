"""Short trainings inside a figure, which use the training loop of all runs but no run folder."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from jaxformer.core.partition import Partition
from jaxformer.core.settings import DataSettings, DeviceSettings, TrainSettings
from jaxformer.io.run_folder import MemoryWorkdir
from jaxformer.tasks.source import make_source
from jaxformer.tasks.task import Batch
from jaxformer.training.phases import Phase
from jaxformer.training.population import population
from jaxformer.training.run import train_phases
from jaxformer.training.setup import make_setup


class Fitted(NamedTuple):
    """The results of a training. Members are ordered by learning rate, then by seed."""

    losses_RxSxT: np.ndarray  # learning rates, seeds, steps; nan after a member diverged
    initial: Any  # parameters before training; the leading axis is members
    params: Any  # parameters after training
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
    """Trains every seed at every learning rate in one program, in float32.

    Args:
      model: The network.
      task: A task of `jaxformer.tasks`.
      partition: The parameters that are trained and those that are frozen.
      tx: The optimizer; a member's learning rate multiplies its updates.
      rates: Learning rates.
      seed: The first seed.
      n_seeds: The number of seeds.
      steps: Training steps.
      batch_size: Examples per step.
      test_size: Examples of the held-out test set that is returned.
    """
    settings = TrainSettings(batch_size=batch_size, steps=steps, log_every=1, eval_every=0)
    with jax.enable_x64(False):
        members = population(seed, n_seeds, rates)
        data = make_source(task, DataSettings(test_size=test_size, validation_size=1), batch_size)
        parts = (task, model, partition, tx, data, members)
        setup = make_setup(*parts, settings, DeviceSettings())
        trained = train_phases([Phase(steps, setup)], settings, MemoryWorkdir({}), progress=False)
        start = setup.create()  # equal to the state in which training began
        initial = Partition.merge(start.trainable, start.frozen)
        losses_TxM = np.stack([row["loss"] for row in trained.session.workdir.rows()])
        diverged_at_M = np.asarray(trained.state.diverged_at)
        # diverged_at is -1 for a member that did not diverge.
        diverged_TxM = (diverged_at_M >= 0)[None] & (
            np.arange(steps)[:, None] >= diverged_at_M[None]
        )
        losses_TxM = np.where(diverged_TxM, np.nan, losses_TxM)
        shape = (len(members.rates), n_seeds, steps)
        return Fitted(
            losses_TxM.T.reshape(shape),
            jax.device_get(initial),
            jax.device_get(trained.params),
            trained.session.heldout.test,
        )
