"""What a training config builds: everything typed and checked, before anything long starts."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from jaxformer import build, sharding
from jaxformer.checkpoint import flatten_state, unflatten_state
from jaxformer.errors import UserError
from jaxformer.partition import FROZEN, Partition
from jaxformer.tasks.source import Source
from jaxformer.tasks.task import Task
from jaxformer.training import population as populations
from jaxformer.training import probes
from jaxformer.training.population import Population
from jaxformer.training.step import TrainState, create, make_step


class Setup(NamedTuple):
    """What a config builds."""

    task: Task
    model: Any
    partition: Partition
    tx: optax.GradientTransformation
    source: Source
    members: Population
    how: str  # members are computed: "map" or "vmap"
    mesh: Mesh
    watch: Any = None  # the model with the probes of config.train.probes

    def init(self, key: jax.Array) -> Any:
        return self.model.init(key, jnp.zeros((1, 1), jnp.int32))["params"]

    def apply(self, params: Any, tokens: jax.Array, positions: jax.Array | None) -> jax.Array:
        return self.model.apply({"params": params}, tokens, positions)

    def shapes(self) -> Any:
        """The shapes of one member's parameters; nothing is computed."""
        return jax.eval_shape(self.init, jax.random.key(0))

    def create(self) -> TrainState:
        keys, rates = self.members.init_keys(), self.members.learning_rates()
        return create(
            self.init,
            self.partition,
            self.tx,
            keys,
            rates,
            lambda shapes: sharding.state_sharding(shapes, self.tx, self.mesh),
        )

    def step(self):
        step = make_step(self.apply, self.task, self.tx, self.how, self.watch)
        if self.mesh.size == 1:
            return step
        shardings = sharding.state_sharding(jax.eval_shape(self.create), self.tx, self.mesh)

        def sharded_step(state, batch):
            state, metrics = step(state, batch)
            state = jax.lax.with_sharding_constraint(state, shardings)
            return state, sharding.everywhere(metrics, self.mesh)

        return sharded_step

    def batch_at(self, avoid: jax.Array):
        """step -> the batch of every member; equal seeds see equal data."""
        keys = self.members.data_keys()

        def batch_at(step):
            batch = jax.vmap(lambda key: self.source.batch_at(key, step, avoid))(keys)
            return sharding.shard_batch(batch, self.mesh)

        return batch_at


def setup(config) -> Setup:
    """Everything typed and checked, before anything long starts."""
    if build.x64():
        raise UserError("training runs in float32 or bfloat16; switch JAX_ENABLE_X64 off.")
    for name in ("steps", "log_every", "eval_every"):
        if config.train[name] < 1:
            raise UserError(f"train.{name} must be at least 1, got {config.train[name]}.")
    task, partition = build.task(config), build.partition(config)
    model = build.model(config, task)
    built = Setup(
        task=task,
        model=model,
        watch=probes.watch(model, config.train.probes),
        partition=partition,
        tx=build.optimizer(config, partition),
        source=build.source(config, task),
        members=populations.population(config.seed, config.n_seeds, config.optim.learning_rate),
        how=config.train.members,
        mesh=sharding.make_mesh(**config.devices),
    )
    sharding.check_batch(config.train.batch_size, built.mesh.shape)
    partition.labels(built.shapes())
    return built


class Phase(NamedTuple):
    """The rules that hold until a step."""

    end: int
    built: Setup


def phases(config) -> list[Phase]:
    """`config.partition`, then every later set of rules of `config.unfreeze`."""
    first, stages = setup(config), []
    begin, built, counts = 0, first, first.partition.count(first.shapes())
    for step, rules in config.unfreeze:
        if not begin < step < config.train.steps:
            raise UserError(
                f"unfreeze steps must increase between 0 and train.steps = {config.train.steps}, "
                f"got {step} after {begin}."
            )
        stages.append(Phase(step, built))
        later = Partition(rules)
        changed = later.count(first.shapes())
        if changed == counts:
            raise UserError(f"the unfreeze rules of step {step} change nothing: {counts}.")
        tx = build.optimizer(config, later)
        begin, counts, built = step, changed, built._replace(partition=later, tx=tx)
    return [*stages, Phase(config.train.steps, built)]


def trained_share(config, steps: int) -> float:
    """The mean over the steps of a run of trained over all parameters."""
    share, begin = 0.0, 0
    for end, built in phases(config):
        counts = built.partition.count(built.shapes())
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


def phase_of(rules, stages: list[Phase], folder) -> Phase:
    """The phase that wrote a checkpoint."""
    wanted = [tuple(rule) for rule in rules]
    for stage in stages:
        if [*stage.built.partition.rules] == wanted:
            return stage
    raise UserError(f"the checkpoint in {folder} was written under other rules: {wanted}.")
