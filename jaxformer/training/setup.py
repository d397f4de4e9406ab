"""Setup: the parts of a run (task, model, data, ..) and the step functions made of them.

A run trains in phases. Each phase is a setup with its own partition, and ends at a step.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from jaxformer.core import adapters, paths, sharding
from jaxformer.core.adapters import Lora
from jaxformer.core.config_fields import is_x64_on
from jaxformer.core.errors import UserError
from jaxformer.core.partition import FROZEN, Partition
from jaxformer.core.settings import DeviceSettings, TrainSettings
from jaxformer.io.checkpoint_writer import flatten_state, unflatten_state
from jaxformer.models.pretrained_init import FromParams
from jaxformer.tasks.chunked_loss import check_head, deferred_logits
from jaxformer.tasks.disk import DiskFeed, OnDisk
from jaxformer.tasks.source import Data, check_stream
from jaxformer.tasks.task import Task
from jaxformer.training import probes
from jaxformer.training.population import Population
from jaxformer.training.step import (
    AXES,
    TrainState,
    create,
    make_evaluate,
    make_step,
    member_state,
)

KERNEL_FLAG = "jax_threefry_gpu_kernel_lowering"  # of jax.config; it changes programs of GPUs only
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
        return adapters.add_shapes(shapes_of(self.model, self.task), dict(self.loras))

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
        keys = self.population.data_keys()

        def batch_at(step):
            batch = jax.vmap(lambda key: self.data.batch_at(key, step, heldout_fingerprints))(keys)
            return sharding.shard_batch(batch, self.mesh)

        return batch_at


@contextlib.contextmanager
def random_numbers_by_kernel(is_on: bool) -> Iterator[None]:
    """Draws random numbers on a GPU by a kernel instead of some 200 operations for each parameter.

    The bits are the same, and the program of the initial state of 12 blocks compiles in 5 instead
    of 44 CPU seconds. XLA cannot split the kernel, so each device of a mesh would draw everything.
    """
    before = getattr(jax.config, KERNEL_FLAG)
    jax.config.update(KERNEL_FLAG, before or is_on)
    try:
        yield
    finally:
        jax.config.update(KERNEL_FLAG, before)


def shapes_of(model: Any, task: Task) -> Any:
    """Returns the shapes of a model's parameters; nothing is computed."""
    try:
        return _parameter_shapes(model, task)
    except TypeError:  # a user's model or task may have no hash
        return _parameter_shapes.__wrapped__(model, task)


@functools.lru_cache(maxsize=64)
def _parameter_shapes(model: Any, task: Task) -> Any:
    return jax.eval_shape(lambda key: model.init(key, task.blank())["params"], jax.random.key(0))


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
    )
    setup = with_adapters(setup, [partition])
    partition.labels(setup.shapes())  # raises for uncovered parameters and rules without effect
    return setup


def adapters_of(shapes: Any, partitions: Iterable[Partition]) -> dict[str, Lora]:
    """The adapters of all phases together: a phase trains parameters, but adds none.

    Args:
        shapes: the shapes of the parameters without adapters.
        partitions: the partitions of the phases.

    Raises:
        UserError: two phases give one kernel different adapters.
    """
    loras: dict[str, Lora] = {}
    for partition in partitions:
        for path, lora in partition.adapters(shapes).items():
            if loras.setdefault(path, lora) != lora:
                raise UserError(
                    f"two phases give {path} different adapters, {loras[path]} and {lora}: an "
                    "adapter keeps its rank and scale during a run."
                )
    return loras


def adapted_shapes(model: Any, task: Task, partitions: Iterable[Partition]) -> Any:
    """The shapes of a model's parameters with the adapters of these partitions."""
    shapes = shapes_of(model, task)
    return adapters.add_shapes(shapes, adapters_of(shapes, partitions))


def with_adapters(setup: Setup, partitions: Iterable[Partition]) -> Setup:
    """Returns the setup with the adapters of all phases; raises if the model takes none."""
    loras = adapters_of(shapes_of(setup.model, setup.task), partitions)
    setup = setup._replace(loras=tuple(loras.items()))
    if loras:
        _check_adapters_are_read(setup)
    return setup


def _check_adapters_are_read(setup: Setup) -> None:
    """Raises UserError if the model would ignore an adapter, since its linear maps are its own."""
    blank = setup.task.blank()
    program = jax.make_jaxpr(lambda params: setup.model.apply({"params": params}, blank))
    traced = program(setup.shapes()).jaxpr
    inputs = dict(zip(paths.flatten(setup.shapes()), traced.invars, strict=True))
    read = {id(variable) for equation in traced.eqns for variable in equation.invars}
    for kernel, _ in setup.loras:
        if id(inputs[adapters.beside(kernel, adapters.LORA_B)]) not in read:
            raise UserError(
                f"{type(setup.model).__name__} takes no adapter at {kernel}: its linear maps are "
                "not jaxformer.models.layers.Dense. Train the kernel itself."
            )


# Phases -------------------------------------------------------------------------------------------


class Phase(NamedTuple):
    """A setup and the step at which its training ends."""

    end: int
    setup: Setup


def make_phases(
    first: Setup,
    steps: int,
    unfreeze: Iterable[tuple[int, Any]],
    optimizer: Callable[[Partition], optax.GradientTransformation],
) -> list[Phase]:
    """Returns one phase for the rules of `first` and one for each entry of `unfreeze`.

    Args:
      first: the setup of the first phase.
      steps: steps of the whole run.
      unfreeze: (step, rules) in increasing order; from this step on the rules hold.
      optimizer: returns the optimizer of a partition.
    """
    later = [(step, Partition(rules)) for step, rules in unfreeze]
    if later:
        first = with_adapters(first, [first.partition, *(partition for _, partition in later)])
        first.partition.labels(first.shapes())  # a later phase may have added parameters
    phases, setup, begin = [], first, 0
    for step, partition in later:
        if not begin < step < steps:
            raise UserError(
                f"unfreeze steps must increase between 0 and train.steps = {steps}, "
                f"got {step} after {begin}."
            )
        phases.append(Phase(step, setup))
        counts = setup.counts()
        setup = setup._replace(partition=partition, tx=optimizer(partition))
        if setup.counts() == counts:
            raise UserError(f"the unfreeze rules of step {step} change nothing: {counts}.")
        begin = step
    return [*phases, Phase(steps, setup)]


def trained_share(phases: Sequence[Phase], steps: int) -> float:
    """Returns the fraction of parameters that are trained, averaged over the steps."""
    share, begin = 0.0, 0
    for end, setup in phases:
        counts = setup.counts()
        trained = 1 - counts.get(FROZEN, 0) / sum(counts.values())
        share += trained * max(min(end, steps) - begin, 0) / steps
        begin = end
    return share


def repartition(state: TrainState, fresh: TrainState) -> TrainState:
    """Returns the state split by new rules. Newly trained parameters have moments of zero.

    Adam's step counter is kept per label. To restart the bias correction of newly trained
    parameters give them a new label.

    Args:
      state: the state under the old rules; its values and moments stay.
      fresh: a state at step 0 under the new rules.
    """
    params = Partition.merge(state.trainable, state.frozen)
    old = flatten_state(state) | flatten_state({"trainable": params, "frozen": params})
    arrays = {
        # A parameter of half precision is float32 from now on if it is trained from now on.
        path: old.get(path, leaf).astype(leaf.dtype)
        for path, leaf in flatten_state(fresh).items()
    }
    return sharding.put_like(unflatten_state(arrays, fresh), fresh)


def phase_of_checkpoint(
    rules: Iterable[Sequence[str]], phases: Sequence[Phase], folder: Any
) -> Phase:
    """Returns the phase that wrote a checkpoint with these rules; raises if there is none."""
    saved_rules = [tuple(rule) for rule in rules]
    for phase in phases:
        if [*phase.setup.partition.rules] == saved_rules:
            return phase
    raise UserError(
        f"the checkpoint in {folder} was written under other rules: {saved_rules}. Give these, or "
        "another --workdir."
    )
