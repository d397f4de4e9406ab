"""Setup: the parts of a run (task, model, data, ..) and the step functions made of them."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from jaxformer.core import adapters, sharding
from jaxformer.core.adapters import Lora
from jaxformer.core.config_fields import is_x64_on
from jaxformer.core.errors import UserError
from jaxformer.core.partition import Partition
from jaxformer.core.settings import DeviceSettings, TrainSettings
from jaxformer.models.pretrained_init import FromParams
from jaxformer.tasks.chunked_loss import check_head, deferred_logits
from jaxformer.tasks.disk import DiskFeed, OnDisk
from jaxformer.tasks.source import Data, check_stream
from jaxformer.tasks.task import Task
from jaxformer.training import probes
from jaxformer.training.loop import ComputedFeed
from jaxformer.training.population import Population, data_keys
from jaxformer.training.random_kernel import random_numbers_by_kernel
from jaxformer.training.shapes import adapters_of, check_adapters_are_read, shapes_of
from jaxformer.training.step import (
    AXES,
    TrainState,
    create,
    make_evaluate,
    make_step,
    member_state,
)

# Evaluation computes at most so many examples and logits at once, to limit its memory.
MAX_EVALUATION_EXAMPLES = 250
MAX_EVALUATION_LOGITS = 2**28


class Setup(NamedTuple):
    """A population of models, their task and data, the partition and the devices."""

    task: Task
    model: Any
    partition: Partition
    tx: optax.GradientTransformation
    data: Data
    population: Population
    member_loop: str  # "map" computes members one after the other, "vmap" side by side
    mesh: Mesh
    apply_with_probes: Any = None  # returns logits and numbers that are logged at every step
    loss_chunk: int = 0  # positions whose logits are in memory at a time; 0: all
    accumulate: int = 1  # parts of a batch, computed one after the other
    loras: tuple[tuple[str, Lora], ...] = ()  # the adapter of each kernel that has one in any phase
    model_shapes: Any = None  # of the model's parameters, without adapters; None: not known yet

    def init(self, key: jax.Array, given: Any = None) -> Any:
        """Returns the initial parameters of one member.

        Args:
            key: the key of the member; each member draws its own adapters.
            given: the parameters to which adapters are added; None draws them too.
        """
        params = self.model.init(key, self.task.blank())["params"] if given is None else given
        return adapters.add(params, dict(self.loras), key) if self.loras else params

    def apply(self, params: Any, tokens: jax.Array, positions: jax.Array | None) -> Any:
        """Returns the logits of one member, which are deferred if `loss_chunk` is set."""
        if self.loss_chunk:
            return deferred_logits(self.model, params, (tokens, positions), self.loss_chunk)
        return self.model.apply({"params": params}, tokens, positions)

    def shapes(self) -> Any:
        """Returns the shapes of one member's parameters; nothing is computed."""
        return adapters.add_shapes(self.shapes_without_adapters(), dict(self.loras))

    def shapes_without_adapters(self) -> Any:
        """Returns the shapes of the model's own parameters."""
        if self.model_shapes is not None:
            return self.model_shapes
        return shapes_of(self.model, self.task)

    def counts(self) -> dict[str, int]:
        """Returns {label: number of parameters} of one member."""
        return self.partition.count(self.shapes())

    def create(self) -> TrainState:
        """Returns the state at step 0, sharded over the mesh."""
        params = self.model.params if isinstance(self.model, FromParams) else None
        parts = (self.init, self.partition, self.tx, self.population)
        with random_numbers_by_kernel(self.mesh.size == 1):
            return create(*parts, self._shardings, params)

    def state_shapes(self, members: int | None = None) -> TrainState:
        """Returns the shapes of `create()`, for `members` members if a number is given."""
        if members is None:
            members = len(self.population.members)

        def with_members(leaf):
            return jax.ShapeDtypeStruct((members, *leaf.shape), leaf.dtype)

        state_of = partial(member_state, partition=self.partition, tx=self.tx)
        rates = jax.ShapeDtypeStruct((members,), jnp.float32)
        params = jax.tree.map(with_members, self.shapes())
        return jax.eval_shape(jax.vmap(state_of, out_axes=AXES), params, rates)

    def _shardings(self, shapes: TrainState) -> TrainState:
        return sharding.state_sharding(shapes, self.tx, self.mesh)

    def step(self) -> Callable:
        """Returns step(state, batch) -> (state, metrics) of all members, sharded over the mesh."""
        step = make_step(
            self.apply,
            self.task,
            self.tx,
            self.member_loop,
            self.apply_with_probes,
            self.accumulate,
        )
        if self.mesh.size == 1:
            return step
        shardings = self._shardings(self.state_shapes())
        step = sharding.over_members(step, self.mesh, (AXES, 0), (AXES, 0))

        def sharded_step(state, batch):
            state, metrics = step(state, batch)
            state = jax.lax.with_sharding_constraint(state, shardings)
            return state, sharding.replicate(metrics, self.mesh)

        return sharded_step

    def evaluation(self) -> Any:
        """Returns evaluate(trainable, frozen, batch) -> {name: Scores (members, examples)}."""
        examples = MAX_EVALUATION_EXAMPLES
        if not self.loss_chunk:  # deferred logits are never in memory as a whole
            logits = max(self.task.n_scored * self.task.answers, 1)
            examples = max(min(examples, MAX_EVALUATION_LOGITS // logits), 1)
        return make_evaluate(self.apply, self.task, examples, self.mesh)

    def batch_at(self, heldout_fingerprints: jax.Array) -> Callable:
        """Returns batch_at(step), the training batch of all members; equal seeds see equal data.

        For data on disk this is a `DiskFeed`, which `loop.fit` reads ahead. Call it with a concrete
        step, not inside jit.

        Args:
          heldout_fingerprints: hashes of the held-out examples, which training avoids.
        """
        if isinstance(self.data, OnDisk):
            return DiskFeed(self.data, self.population, self.mesh)

        def batch_at(step, seeds_M, avoid):
            keys = data_keys(seeds_M)
            batch = jax.vmap(lambda key: self.data.batch_at(key, step, avoid))(keys)
            return sharding.shard_batch(batch, self.mesh)

        return ComputedFeed(batch_at, self.population.member_seeds(), heldout_fingerprints)


def make_setup(
    task: Task,
    model: Any,
    partition: Partition,
    tx: optax.GradientTransformation,
    data: Data,
    population: Population,
    settings: TrainSettings,
    devices: DeviceSettings,
) -> Setup:
    """Returns a setup whose parts fit together; raises UserError if they do not.

    Args:
        task: the task, which also defines the loss.
        model: the model, with `init` and `apply`.
        partition: the label of each parameter path.
        tx: the optimizer, for a learning rate of 1.
        data: the source of batches and held-out sets.
        population: the seeds and learning rates that are trained together.
        settings: the settings of training.
        devices: the sizes of the mesh axes.
    """
    if is_x64_on():
        raise UserError("training runs in float32 or bfloat16; switch JAX_ENABLE_X64 off.")
    mesh = sharding.make_mesh(
        **vars(devices), batch_size=data.batch_size, population=len(population.members)
    )
    sharding.check_batch(data.batch_size, mesh.shape, settings.accumulate)
    check_stream(data, settings.steps)
    apply_with_probes = probes.attach(model, settings.probes)
    if settings.loss_chunk:
        check_head(model)
    setup = Setup(
        task=task,
        model=model,
        partition=partition,
        tx=tx,
        data=data,
        population=population,
        member_loop=settings.members,
        mesh=mesh,
        apply_with_probes=apply_with_probes,
        loss_chunk=settings.loss_chunk,
        accumulate=settings.accumulate,
        model_shapes=shapes_of(model, task),
    )
    setup = with_adapters(setup, [partition])
    partition.labels(setup.shapes())  # raises for uncovered parameters and rules without effect
    return setup


def with_adapters(setup: Setup, partitions: Iterable[Partition]) -> Setup:
    """Returns the setup with the adapters of all phases; raises if the model takes none."""
    shapes = setup.shapes_without_adapters()
    loras = adapters_of(shapes, partitions)
    setup = setup._replace(loras=tuple(loras.items()))
    if loras:
        check_adapters_are_read(setup.model, setup.task, loras, shapes)
    return setup
