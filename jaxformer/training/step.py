"""One training step of a population: members differ in seed and learning rate, not in program.

Only the trainable half of the parameters is differentiated: a frozen weight has no gradient, no
optimizer state, no decay and no say in the clip, and XLA never computes what it would have cost.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxformer.core import sharding
from jaxformer.core.errors import check_choice
from jaxformer.core.partition import Partition
from jaxformer.core.settings import MEMBER_MODES
from jaxformer.models.model import check_answer
from jaxformer.tasks.task import Batch, Scores, Task, scored_positions

Apply = Callable[..., jax.Array]  # (params, tokens, positions) -> logits
Probed = Callable[..., tuple[jax.Array, dict[str, jax.Array]]]  # the same, and named numbers


class TrainState(NamedTuple):
    """Everything that a step changes; all but `step` have a leading axis of members."""

    step: jax.Array
    trainable: Any
    frozen: Any
    opt_state: Any
    learning_rate: jax.Array
    diverged_at: jax.Array  # the step whose loss was not finite, -1 while all is well


AXES: Any = TrainState(*[None, 0, 0, 0, 0, 0])  # which fields have members, for vmap


def create(
    init: Callable[[jax.Array], Any],
    partition: Partition,
    tx: optax.GradientTransformation,
    member_keys: jax.Array,
    learning_rates: jax.Array,
    place: Callable[[TrainState], TrainState] | None = None,
) -> TrainState:
    """The state at step 0: `init(key)` draws a member's parameters.

    `place` maps the state's shapes to shardings: each device then only makes its own part.
    """

    def member(key, learning_rate):
        params = init(key)
        partition.labels(params)  # uncovered or idle rules raise here
        trainable, frozen = partition.split(params)
        never = jnp.full((), -1, jnp.int32)
        zero = jnp.zeros((), jnp.int32)
        return TrainState(zero, trainable, frozen, tx.init(trainable), learning_rate, never)

    @partial(jax.jit, inline=True)  # its shapes and its values need one trace
    def members():
        return jax.vmap(member, out_axes=AXES)(member_keys, learning_rates)

    shardings = None if place is None else place(jax.eval_shape(members))
    return jax.jit(lambda: members(), out_shardings=shardings)()


def make_step(
    apply: Apply,
    task: Task,
    tx: optax.GradientTransformation,
    members: str = "vmap",
    probed: Probed | None = None,
    accumulate: int = 1,
):
    """step(state, batch) -> (state, metrics); batch and metrics have the axis of members.

    members="vmap" computes them side by side, "map" one after the other in the same program: less
    memory, and faster where one member fills the device. `probed`, in place of `apply`, also
    returns numbers to log at every step, of the same forward pass. `accumulate`: in how many parts
    the batch is computed, one after the other; the gradient is that of the whole.
    """
    check_choice("mode of members", members, MEMBER_MODES)

    def scores_of(trainable, frozen, batch):
        params = Partition.merge(trainable, frozen)
        positions_BxK, gathered = scored_positions(batch, task.n_scored)
        inputs = (params, batch.inputs, positions_BxK)
        logits, seen = probed(*inputs) if probed else (apply(*inputs), {})
        check_answer(logits, gathered.targets.shape, task.answers)
        return task.metrics(logits, gathered)["loss"], seen

    def loss_of(trainable, frozen, batch):
        scores, seen = scores_of(trainable, frozen, batch)
        return token_weighted(scores), seen

    value_and_gradient = jax.value_and_grad(loss_of, has_aux=True)
    if accumulate > 1:
        value_and_gradient = in_parts(scores_of, accumulate)

    def member_step(state: TrainState, batch: Batch):
        (loss, seen), gradient = value_and_gradient(state.trainable, state.frozen, batch)
        norm = optax.global_norm(gradient)
        updates, opt_state = tx.update(gradient, state.opt_state, state.trainable)
        updates = jax.tree.map(lambda u: state.learning_rate.astype(u.dtype) * u, updates)
        trainable = optax.apply_updates(state.trainable, updates)

        # A diverging member keeps its last good state and never stops the others.
        good = jnp.isfinite(loss) & jnp.isfinite(norm) & (state.diverged_at < 0)
        trainable, opt_state = jax.tree.map(
            lambda new, old: jnp.where(good, new, old),
            (trainable, opt_state),
            (state.trainable, state.opt_state),
        )
        bad_now = ~good & (state.diverged_at < 0)
        diverged_at = jnp.where(bad_now, state.step, state.diverged_at)
        state = TrainState(
            state.step + 1, trainable, state.frozen, opt_state, state.learning_rate, diverged_at
        )
        return state, {"loss": loss, "gradient_norm": norm, **seen}

    if members == "vmap":
        return jax.vmap(member_step, in_axes=(AXES, 0), out_axes=(AXES, 0))

    def step_in_turn(state: TrainState, batch: Batch):
        def one(args):
            mine, my_batch = args
            mine, metrics = member_step(state._replace(**mine), my_batch)
            return {name: getattr(mine, name) for name in changing}, metrics

        changing = [name for name, axis in AXES._asdict().items() if axis == 0]
        mine = {name: getattr(state, name) for name in changing}
        mine, metrics = jax.lax.map(one, (mine, batch))
        return state._replace(step=state.step + 1, **mine), metrics

    return step_in_turn


def in_parts(scores_of: Callable, n: int) -> Callable:
    """((loss, seen), gradient) of the whole batch, of which a part is in memory at a time.

    A part's share in the mean is its weight, which is known when all have been seen: sums of
    weighted values, and their gradients, are divided at the end.
    """

    def total(trainable, frozen, part):
        scores, seen = scores_of(trainable, frozen, part)
        return (scores.value * scores.weight).sum(), (scores.weight.sum(), seen)

    def value_and_gradient(trainable, frozen, batch):
        # Every n-th example: of a batch that is cut over devices each then has a share of a part.
        parts = jax.tree.map(lambda x: x.reshape(-1, n, *x.shape[1:]).swapaxes(0, 1), batch)

        def add(sums, part):
            found = jax.value_and_grad(total, has_aux=True)(trainable, frozen, part)
            return jax.tree.map(jnp.add, sums, found), None

        first = jax.tree.map(lambda x: x[0], parts)
        shapes = jax.eval_shape(jax.value_and_grad(total, has_aux=True), trainable, frozen, first)
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        ((loss, (weight, seen)), gradient), _ = jax.lax.scan(add, zeros, parts)
        weight = jnp.maximum(weight, 1e-9)
        gradient = jax.tree.map(lambda g: g / weight.astype(g.dtype), gradient)
        return (loss / weight, jax.tree.map(lambda x: x / n, seen)), gradient

    return value_and_gradient


def task_scores(apply: Apply, task: Task, params: Any, batch: Batch) -> dict[str, Scores]:
    """The task's per-example scores, with the head applied only where positions are scored."""
    positions_BxK, gathered = scored_positions(batch, task.n_scored)
    logits = apply(params, batch.inputs, positions_BxK)
    check_answer(logits, gathered.targets.shape, task.answers)
    return task.metrics(logits, gathered)


def token_weighted(scores: Scores) -> jax.Array:
    """The mean over the scored tokens of the batch, whatever example they are in."""
    return (scores.value * scores.weight).sum() / jnp.maximum(scores.weight.sum(), 1e-9)


def make_evaluate(apply: Apply, task: Task, batch_size: int, mesh: Mesh | None = None):
    """evaluate(trainable, frozen, batch) -> per-example Scores, (members, examples)."""

    def evaluate(trainable, frozen, batch: Batch):
        params = Partition.merge(trainable, frozen)
        return jax.lax.map(
            lambda example: jax.tree.map(
                lambda x: x[0],
                task_scores(apply, task, params, jax.tree.map(lambda x: x[None], example)),
            ),
            batch,
            batch_size=batch_size,
        )

    members, axes = jax.vmap(evaluate, in_axes=(0, 0, None)), (0, 0, None)
    if mesh is None:
        return jax.jit(members)
    members = sharding.over_members(members, mesh, axes, 0)
    return jax.jit(members, out_shardings=NamedSharding(mesh, PartitionSpec()))
