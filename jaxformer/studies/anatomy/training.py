"""Trains every variant of a network in one compiled program.

The program takes a mask of the updated parameters as an argument, in the state of the optimizer. So
a network is compiled once, and each further variant costs its steps only. A test checks that the
results equal those of `jaxformer.train` in every bit, although `jaxformer.train` differentiates
the trained parameters only.

A member has one seed and one learning rate. Its initial values and its data are those of the same
seed in `jaxformer.train`.
"""

import math
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxformer.core import paths
from jaxformer.core.partition import FROZEN, Partition
from jaxformer.data.protocols import HeldOut
from jaxformer.studies.anatomy.parts import Variant
from jaxformer.studies.anatomy.subject import Network
from jaxformer.tasks.disk import MAX_READ_STEPS, OnDisk, Order
from jaxformer.training.metrics import Mean, means_of_members
from jaxformer.training.population import Population
from jaxformer.training.step import AXES, TrainState, make_evaluate, make_step, member_state

CURVE_POINTS = 20  # the number of points of a curve of the training loss


class Trained(NamedTuple):
    """The scores of one member."""

    test: dict[str, Mean]  # by metric
    validation: dict[str, Mean]
    curve: list[tuple[int, float]]  # (step, mean training loss since the point before)
    diverged_at: int | None
    seconds: float


class Masked(NamedTuple):
    """The state of an optimizer whose updates are masked."""

    is_updated: Any  # {path: boolean}
    inner: Any  # the state of the optimizer without the mask


def masked(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """Returns the optimizer with a mask in its state, which freezes parameters outside the mask.

    Gradients of frozen parameters become zero before clipping, so that they do not count in the
    norm. Their updates become zero afterwards.
    """

    def init(params: Any) -> Masked:
        return Masked(jax.tree.map(lambda _: jnp.ones((), bool), params), optimizer.init(params))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Masked]:
        updates, inner = optimizer.update(_apply_mask(state, updates), state.inner, params)
        return _apply_mask(state, updates), Masked(state.is_updated, inner)

    return optax.GradientTransformation(init, update)


def _apply_mask(state: Masked, tree: Any) -> Any:
    return jax.tree.map(lambda updated, x: jnp.where(updated, x, 0), state.is_updated, tree)


class Trainer:
    """The compiled programs of a network: initial values, training steps, scores.

    Args:
      network: model, data and optimizer.
      heldout: the held-out sets of its data; None draws them.
    """

    def __init__(self, network: Network, heldout: HeldOut | None = None):
        self.network = network
        self.optimizer = masked(network.optimizer)
        apply = network.apply
        self.step = make_step(apply, network.task, self.optimizer, member_loop="map")
        self.evaluate = make_evaluate(apply, network.task, batch_size=250)
        self.run = jax.jit(self._run, donate_argnums=0)
        self.initial = network.initial
        self.create = jax.jit(jax.vmap(self._member_state, out_axes=AXES))
        self.heldout = heldout or jax.device_get(network.data.heldout())

    def train(self, variant: Variant, seed: int, rate: float) -> tuple[Trained, Any]:
        """Trains one member.

        Returns:
          (its scores, its parameters)
        """
        began = time.perf_counter()
        states = self._states(variant, seed, rate, CURVE_POINTS)
        state, step, loss = next(states)  # a training has at least one step
        curve = [(step, loss)]
        for state, step, loss in states:  # noqa: B007 (the last state is scored below)
            curve.append((step, loss))
        validation, test = (self._scores(state, name) for name in ("validation", "test"))
        diverged_at = int(state.diverged_at[0])
        params = jax.tree.map(lambda x: x[0], Partition.merge(state.trainable, state.frozen))
        seconds = time.perf_counter() - began
        diverged = diverged_at if diverged_at >= 0 else None
        return Trained(test, validation, curve, diverged, seconds), params

    def snapshots(
        self, variant: Variant, seed: int, rate: float, points: int
    ) -> Iterator[tuple[int, float, Any]]:
        """Yields (step, mean loss since the point before, parameters) of a member in training.

        The last parameters are those of `train`, whatever the number of points.
        """
        for state, step, loss in self._states(variant, seed, rate, points):
            params = Partition.merge(state.trainable, state.frozen)
            yield step, loss, jax.device_get(jax.tree.map(lambda x: x[0], params))

    def _states(
        self, variant: Variant, seed: int, rate: float, points: int
    ) -> Iterator[tuple[TrainState, int, float]]:
        """Yields (state, step, mean loss since the point before) while a member is trained."""
        steps = self.network.steps
        member = Population((seed,), (rate,))
        state, keys = self._create(variant, member), member.data_keys()
        chunk = math.ceil(steps / points)  # steps between two points
        if isinstance(self.network.data, OnDisk):
            chunk = min(chunk, MAX_READ_STEPS)
        for done in range(0, steps, chunk):
            n = min(chunk, steps - done)
            # The last chunk reads as many rows as the others, so that no second shape is compiled.
            rows = self._rows(keys, range(done, done + chunk))
            state, loss = self.run(state, keys, n, rows)
            yield state, done + n, float(loss) / n

    def _create(self, variant: Variant, member: Population) -> TrainState:
        """Returns the state at step 0, with the zeros and the mask of the variant."""
        params = self.initial(member.init_keys())
        zeroed = {path: x for path, x in paths.flatten(params).items() if variant.is_zero(path)}
        params = paths.replace(params, jax.tree.map(jnp.zeros_like, zeroed))
        state = self.create(params, member.learning_rates())
        is_updated = paths.map_with_path(
            lambda path, _: jnp.full((1,), variant.is_updated(path)), state.trainable
        )
        return state._replace(opt_state=Masked(is_updated, state.opt_state.inner))

    def _member_state(self, params: Any, rate: jax.Array) -> TrainState:
        return member_state(params, rate, self.network.partition, self.optimizer)

    def _rows(self, keys: jax.Array, steps: range) -> jax.Array | None:
        """Reads the rows of some steps, (steps, B rows, R integers), if the data are on disk."""
        data = self.network.data
        return jnp.asarray(data.read(Order(keys[0]), steps)) if isinstance(data, OnDisk) else None

    def _run(
        self, state: TrainState, keys: jax.Array, n: jax.Array, rows: jax.Array | None
    ) -> tuple[TrainState, Any]:
        """Runs n steps; returns the state and the sum of the losses."""
        avoid = self.heldout.fingerprints  # training batches contain no held-out example
        data, first = self.network.data, state.step

        def batch_at(key, step):
            if rows is None:
                return data.batch_at(key, step, avoid)
            return data.batch_of_rows(rows[step - first], key, step)

        def body(_, carry):
            state, total = carry
            batch = jax.vmap(lambda key: batch_at(key, state.step))(keys)
            state, metrics = self.step(state, batch)
            loss = metrics["loss"][0]  # of the only member
            return state, total + loss.astype(jnp.float32)

        return jax.lax.fori_loop(0, n, body, (state, jnp.zeros((), jnp.float32)))

    def _scores(self, state: TrainState, set_name: str) -> dict[str, Mean]:
        scores = self.evaluate(state.trainable, state.frozen, getattr(self.heldout, set_name))
        return means_of_members(scores, self.network.task.means_of_batches)[0]


def is_change(network: Network, variant: Variant) -> bool:
    """Returns whether a variant differs from the network and still trains a parameter.

    If the run itself freezes a part, the variant that freezes this part changes nothing. A removal
    that makes no parameter zero removes nothing: it would freeze the part at random values.
    """
    names = paths.flatten(network.shapes)
    trained = {name for name in names if network.partition.label(name) != FROZEN}
    still_trained = {name for name in trained if variant.is_updated(name)}
    has_zeros = any(map(variant.is_zero, names))
    is_removal = bool(variant.zeroed)
    return bool(still_trained) and (has_zeros if is_removal else still_trained != trained)
