"""What is trained: the nouns of a run and the functions of a step that follow from them."""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import optax
from jax.sharding import Mesh

from jaxformer.core import sharding
from jaxformer.core.errors import UserError
from jaxformer.core.partition import FROZEN, Partition
from jaxformer.core.settings import DeviceSettings, TrainSettings
from jaxformer.io.checkpoint_writer import flatten_state, unflatten_state
from jaxformer.tasks.chunked_loss import check_head, deferred_logits
from jaxformer.tasks.disk import DiskFeed, OnDisk
from jaxformer.tasks.source import Data
from jaxformer.tasks.task import Task
from jaxformer.training import probes
from jaxformer.training.population import Population
from jaxformer.training.step import AXES, TrainState, create, make_step


class Setup(NamedTuple):
    """A population of models, its task and data, what is trained and on which devices."""

    task: Task
    model: Any
    partition: Partition
    tx: optax.GradientTransformation
    data: Data
    members: Population
    members_by: str  # members are computed by "map" or "vmap"
    mesh: Mesh
    probed: Any = None  # the model with probes that are logged at every step
    loss_chunk: int = 0  # positions whose logits are held at once; 0: all
    accumulate: int = 1  # parts of a batch, of which one is computed at a time

    def init(self, key: jax.Array) -> Any:
        return self.model.init(key, self.task.blank())["params"]

    def apply(self, params: Any, tokens: jax.Array, positions: jax.Array | None) -> Any:
        if self.loss_chunk:
            return deferred_logits(self.model, params, (tokens, positions), self.loss_chunk)
        return self.model.apply({"params": params}, tokens, positions)

    def shapes(self) -> Any:
        """Returns the shapes of one member's parameters; nothing is computed."""
        return shapes_of(self.model, self.task)

    def counts(self) -> dict[str, int]:
        """{label: number of parameters} of one member."""
        return self.partition.count(self.shapes())

    def create(self) -> TrainState:
        """The state at step 0, laid out on the mesh."""
        return create(
            self.init,
            self.partition,
            self.tx,
            self.members.init_keys(),
            self.members.learning_rates(),
            lambda shapes: sharding.state_sharding(shapes, self.tx, self.mesh),
        )

    def step(self) -> Callable:
        """step(state, batch) -> (state, metrics) of all members."""
        how = (self.members_by, self.probed, self.accumulate)
        step = make_step(self.apply, self.task, self.tx, *how)
        if self.mesh.size == 1:
            return step
        shardings = sharding.state_sharding(jax.eval_shape(self.create), self.tx, self.mesh)
        step = sharding.over_members(step, self.mesh, (AXES, 0), (AXES, 0))

        def sharded_step(state, batch):
            state, metrics = step(state, batch)
            state = jax.lax.with_sharding_constraint(state, shardings)
            return state, sharding.everywhere(metrics, self.mesh)

        return sharded_step

    def batch_at(self, avoid: jax.Array) -> Callable:
        """step -> the batch of every member; equal seeds see equal data.

        Of data on a disk it is a feed, which also serves `loop.fit`; called, it takes a number.
        """
        if isinstance(self.data, OnDisk):
            return DiskFeed(self.data, self.members, self.mesh)
        keys = self.members.data_keys()

        def batch_at(step):
            batch = jax.vmap(lambda key: self.data.batch_at(key, step, avoid))(keys)
            return sharding.shard_batch(batch, self.mesh)

        return batch_at


def shapes_of(model: Any, task: Task) -> Any:
    """Returns the shapes of a model's parameters; nothing is computed."""
    try:
        return _shapes(model, task)
    except TypeError:  # a user's model or task may have no hash
        return _shapes.__wrapped__(model, task)


@functools.lru_cache(maxsize=64)
def _shapes(model: Any, task: Task) -> Any:
    return jax.eval_shape(lambda key: model.init(key, task.blank())["params"], jax.random.key(0))


def make_setup(
    task: Task,
    model: Any,
    partition: Partition,
    tx: optax.GradientTransformation,
    data: Data,
    members: Population,
    settings: TrainSettings,
    devices: DeviceSettings,
) -> Setup:
    """Everything checked, before anything long starts."""
    if jax.dtypes.canonicalize_dtype(float).itemsize == 8:
        raise UserError("training runs in float32 or bfloat16; switch JAX_ENABLE_X64 off.")
    sizes = dict(batch_size=data.batch_size, population=len(members.members))
    mesh = sharding.make_mesh(**vars(devices), **sizes)
    sharding.check_batch(data.batch_size, mesh.shape, settings.accumulate)
    probed = probes.attach(model, settings.probes)
    if settings.loss_chunk:
        check_head(model)
    setup = Setup(
        *(task, model, partition, tx, data, members, settings.members, mesh, probed),
        loss_chunk=settings.loss_chunk,
        accumulate=settings.accumulate,
    )
    partition.labels(setup.shapes())
    return setup


class Phase(NamedTuple):
    """The setup that holds until a step."""

    end: int
    setup: Setup


def thawing(
    first: Setup,
    steps: int,
    unfreeze: Iterable[tuple[int, Any]],
    optimizer: Callable[[Partition], optax.GradientTransformation],
) -> list[Phase]:
    """The rules of `first`, then every later set of rules: ((step, ((pattern, label), ..)), ..)."""
    phases, setup, begin = [], first, 0
    for step, rules in unfreeze:
        if not begin < step < steps:
            raise UserError(
                f"unfreeze steps must increase between 0 and train.steps = {steps}, "
                f"got {step} after {begin}."
            )
        phases.append(Phase(step, setup))
        later, counts = Partition(rules), setup.counts()
        setup = setup._replace(partition=later, tx=optimizer(later))
        if setup.counts() == counts:
            raise UserError(f"the unfreeze rules of step {step} change nothing: {counts}.")
        begin = step
    return [*phases, Phase(steps, setup)]


def trained_share(phases: Sequence[Phase], steps: int) -> float:
    """The mean over the steps of a run of trained over all parameters."""
    share, begin = 0.0, 0
    for end, setup in phases:
        counts = setup.counts()
        part = 1 - counts.get(FROZEN, 0) / sum(counts.values())
        share += part * max(min(end, steps) - begin, 0) / steps
        begin = end
    return share


def regroup(state: TrainState, fresh: TrainState) -> TrainState:
    """The state under new rules: values and moments stay, newly freed moments start at zero.

    Counts belong to a label: give freed leaves a label of their own for a fresh Adam correction.
    """
    params = Partition.merge(state.trainable, state.frozen)
    old = flatten_state(state) | flatten_state({"trainable": params, "frozen": params})
    arrays = {path: old.get(path, leaf) for path, leaf in flatten_state(fresh).items()}
    return sharding.place(unflatten_state(arrays, fresh), fresh)


def phase_of(rules: Iterable[Sequence[str]], phases: Sequence[Phase], where: Any) -> Phase:
    """The phase that wrote a checkpoint."""
    wanted = [tuple(rule) for rule in rules]
    for phase in phases:
        if [*phase.setup.partition.rules] == wanted:
            return phase
    raise UserError(f"the checkpoint in {where} was written under other rules: {wanted}.")
