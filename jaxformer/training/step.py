"""One training step of a population: members differ in seed and learning rate, not in program.

Only the trainable parameters are differentiated. A frozen weight has no gradient, no optimizer
state and no decay, and does not count in the gradient norm of clipping. XLA computes none of these.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxformer.core import layouts, sharding
from jaxformer.core.errors import check_choice
from jaxformer.core.optim import updates_at_rate
from jaxformer.core.partition import Partition
from jaxformer.core.settings import MEMBER_MODES
from jaxformer.models.half_precision import wide
from jaxformer.models.model import check_logits
from jaxformer.tasks.known_derivative import with_derivative
from jaxformer.tasks.task import Batch, Scores, Task, scored_positions
from jaxformer.training.population import Population, init_keys

MAX_QUICK_NUMBERS = 10**7  # drawn in a second without loops over vectors
Apply = Callable[..., jax.Array]  # (params, tokens, positions) -> logits
ApplyWithProbes = Callable[..., tuple[jax.Array, dict[str, jax.Array]]]  # -> (logits, numbers)


class TrainState(NamedTuple):
    """The state of training. All fields except `step` have a leading axis of members."""

    step: jax.Array  # () number of steps done
    trainable: Any  # {path: parameter}
    frozen: Any  # {path: parameter}
    opt_state: Any
    learning_rate: jax.Array  # (members,)
    diverged_at: jax.Array  # (members,) the first step without a finite loss or gradient, or -1


AXES: Any = TrainState(*[None, 0, 0, 0, 0, 0])  # the axis of members of each field, for vmap


def create(
    init: Callable[..., Any],
    partition: Partition,
    tx: optax.GradientTransformation,
    population: Population,
    shardings_of: Callable[[TrainState], TrainState] | None = None,
    params: Any = None,
) -> TrainState:
    """Returns the state at step 0.

    Args:
      init: init(key) -> the parameters of one member, or init(key, params) if they are given.
      partition: the rules that split parameters into trainable and frozen ones.
      tx: the optimizer, whose updates a step multiplies by the member's learning rate.
      population: seeds and learning rates of the members.
      shardings_of: maps the shapes of the state to shardings, so that each device computes only
        its part. None leaves the state on the default device.
      params: the parameters that every member begins with; None draws them by `init`.

    Seeds, learning rates and parameters are arguments of the compiled function. As constants, each
    seed would need a program of its own, and parameters a second copy.
    """

    def create_member(key, learning_rate, given):
        params = init(key) if given is None else init(key, given)
        return member_state(params, learning_rate, partition, tx)

    @partial(jax.jit, inline=True)  # shapes and values share one trace
    def create_all(seeds, learning_rates, given):
        member_keys = init_keys(seeds)
        create_members = jax.vmap(create_member, in_axes=(0, 0, None), out_axes=AXES)
        return create_members(member_keys, learning_rates, given)

    rates = np.array([rate for _, rate in population.members], jnp.result_type(float))
    arguments = (population.member_seeds(), rates, params)
    shapes = jax.eval_shape(create_all, *arguments)
    shardings = None if shardings_of is None else shardings_of(shapes)
    program = jax.jit(
        lambda *given: create_all(*given),
        out_shardings=shardings,
        compiler_options=_quick_to_compile(shapes),
    )
    return program(*arguments)


def _quick_to_compile(state: TrainState) -> dict[str, Any] | None:
    """Options of XLA for the program of the initial state of a small network on a CPU.

    Compiling it takes longer than training it for some hundred steps, and a quarter of that without
    loops over vectors. The numbers are the same.
    """
    n_numbers = sum(leaf.size for leaf in jax.tree.leaves(state))
    is_quick = jax.config.values.get("jax_disable_most_optimizations")  # it rounds otherwise
    if jax.default_backend() != "cpu" or is_quick or n_numbers > MAX_QUICK_NUMBERS:
        return None
    return {"xla_backend_optimization_level": 1}


def member_state(
    params: Any,
    learning_rate: jax.Array,
    partition: Partition,
    tx: optax.GradientTransformation,
) -> TrainState:
    """Returns the state of one member at step 0.

    Trained parameters of half precision become float32, and so do their moments and gradients:
    bfloat16 loses updates below 1/500 of a weight. Frozen ones keep their precision.

    Args:
        params: the initial parameters of the member, a nested dict.
        learning_rate: a scalar, which multiplies the updates of `tx`.
        partition: the label of each parameter path.
        tx: the optimizer of the trainable parameters.
    """
    partition.labels(params)  # raises for uncovered parameters and for rules without effect
    trainable, frozen = partition.split(params)
    trainable = jax.tree.map(wide, trainable)
    diverged_at = jnp.full((), -1, jnp.int32)
    step = jnp.zeros((), jnp.int32)
    return TrainState(step, trainable, frozen, tx.init(trainable), learning_rate, diverged_at)


def make_step(
    apply: Apply,
    task: Task,
    tx: optax.GradientTransformation,
    member_loop: str = "vmap",
    apply_with_probes: ApplyWithProbes | None = None,
    accumulate: int = 1,
) -> Callable[[TrainState, Batch], tuple[TrainState, dict[str, jax.Array]]]:
    """Returns step(state, batch) -> (state, metrics).

    Args:
      apply: apply(params, tokens, positions) -> logits of one member.
      task: gives the loss.
      tx: the optimizer, as in `create`.
      member_loop: "vmap" computes members side by side. "map" computes them one after the other in
        the same program: less memory, and faster if one member fills the device.
      apply_with_probes: like `apply`, but also returns {name: number} of the same forward pass,
        which the step adds to its metrics.
      accumulate: parts of a batch that are computed one after the other. The gradient is the
        gradient of the whole batch.

    Returns:
      A function that can be jitted. Batch and metrics have a leading axis of members; the metrics
      are "loss", "gradient_norm" and the numbers of the probes.
    """
    check_choice("mode of members", member_loop, MEMBER_MODES)

    def scores_of(trainable, frozen, batch, total):
        """Returns the loss of each example, whose gradient in logits is that of total(scores)."""
        params = Partition.merge(trainable, frozen)
        positions_BxK, gathered = scored_positions(batch, task.n_scored)
        if apply_with_probes:
            logits, probes = apply_with_probes(params, batch.inputs, positions_BxK)
        else:
            logits, probes = apply(params, batch.inputs, positions_BxK), {}
        check_logits(logits, gathered.targets.shape, task.answers)

        def loss(logits):
            return total(task.metrics(logits, gathered)["loss"])

        logits = with_derivative(logits, gathered.targets, loss)
        return task.metrics(logits, gathered)["loss"], probes

    def loss_of(trainable, frozen, batch):
        scores, probes = scores_of(trainable, frozen, batch, token_weighted)
        return token_weighted(scores), probes

    value_and_gradient = jax.value_and_grad(loss_of, has_aux=True)
    if accumulate > 1:
        value_and_gradient = in_parts(scores_of, accumulate)

    def member_step(state: TrainState, batch: Batch):
        (loss, probes), gradient = value_and_gradient(state.trainable, state.frozen, batch)
        with jax.named_scope("optimizer"):  # the name by which a plan finds these operations
            norm = optax.tree.norm(gradient)
            updates, opt_state = updates_at_rate(
                tx, gradient, state.opt_state, state.trainable, state.learning_rate
            )
            trainable = optax.apply_updates(state.trainable, updates)

            # A member that diverges keeps its last finite parameters and never stops the others.
            is_good = jnp.isfinite(loss) & jnp.isfinite(norm) & (state.diverged_at < 0)
            trainable, opt_state = jax.tree.map(
                lambda new, old: jnp.where(is_good, new, old),
                (trainable, opt_state),
                (state.trainable, state.opt_state),
            )
        diverges_now = ~is_good & (state.diverged_at < 0)
        diverged_at = jnp.where(diverges_now, state.step, state.diverged_at)
        state = TrainState(
            state.step + 1, trainable, state.frozen, opt_state, state.learning_rate, diverged_at
        )
        return state, {"loss": loss, "gradient_norm": norm, **probes}

    if member_loop == "vmap":
        return jax.vmap(member_step, in_axes=(AXES, 0), out_axes=(AXES, 0))

    def step_in_turn(state: TrainState, batch: Batch):
        def one_member(args):
            member_fields, member_batch = args
            new, metrics = member_step(state._replace(**member_fields), member_batch)
            return {name: getattr(new, name) for name in per_member}, metrics

        per_member = [name for name, axis in AXES._asdict().items() if axis == 0]
        fields = {name: getattr(state, name) for name in per_member}
        fields, metrics = jax.lax.map(one_member, (fields, batch))
        return state._replace(step=state.step + 1, **fields), metrics

    return step_in_turn


def in_parts(scores_of: Callable, n: int) -> Callable:
    """Returns a function that computes ((loss, probes), gradient) in n parts, one at a time.

    The loss is a weighted mean whose total weight is known only after the last part. So weighted
    values and their gradients are summed, and divided by the weight at the end.
    """

    def weighted_total(scores):
        return (scores.value * scores.weight).sum()

    def weighted_sum(trainable, frozen, part):
        scores, probes = scores_of(trainable, frozen, part, weighted_total)
        return weighted_total(scores), (scores.weight.sum(), probes)

    def value_and_gradient(trainable, frozen, batch):
        # A part is every n-th example, so that each device of a sharded batch has a share of it.
        parts = jax.tree.map(lambda x: x.reshape(-1, n, *x.shape[1:]).swapaxes(0, 1), batch)

        sum_and_gradient = jax.value_and_grad(weighted_sum, has_aux=True)

        def add(sums, part):
            return jax.tree.map(jnp.add, sums, sum_and_gradient(trainable, frozen, part)), None

        first = jax.tree.map(lambda x: x[0], parts)
        shapes = jax.eval_shape(sum_and_gradient, trainable, frozen, first)
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        ((loss, (weight, probes)), gradient), _ = jax.lax.scan(add, zeros, parts)
        weight = jnp.maximum(weight, 1e-9)
        gradient = jax.tree.map(lambda g: g / weight.astype(g.dtype), gradient)
        return (loss / weight, jax.tree.map(lambda x: x / n, probes)), gradient

    return value_and_gradient


def task_scores(apply: Apply, task: Task, params: Any, batch: Batch) -> dict[str, Scores]:
    """Returns the task's per-example scores. The head is applied at scored positions only.

    Args:
        apply: apply(params, inputs, positions) -> logits (B, K, V).
        task: the task.
        params: the parameters of one member.
        batch: a batch of one member.

    Returns:
        {name: Scores (B,)}.
    """
    positions_BxK, gathered = scored_positions(batch, task.n_scored)
    logits = apply(params, batch.inputs, positions_BxK)
    check_logits(logits, gathered.targets.shape, task.answers)
    return task.metrics(logits, gathered)


def token_weighted(scores: Scores) -> jax.Array:
    """Returns the mean over the scored tokens of a batch; each token has its weight."""
    return (scores.value * scores.weight).sum() / jnp.maximum(scores.weight.sum(), 1e-9)


def make_evaluate(apply: Apply, task: Task, batch_size: int, mesh: Mesh | None = None) -> Any:
    """Returns evaluate(trainable, frozen, batch) -> {name: Scores of shape (members, examples)}.

    Args:
      apply: as in `make_step`.
      task: gives the scores.
      batch_size: examples that are computed at once.
      mesh: the devices of the members; the scores are on all of them. None: one device.
    """

    def evaluate(trainable, frozen, batch: Batch):
        params = Partition.merge(trainable, frozen)

        def scores_of(example: Batch):
            batch_of_one = jax.tree.map(lambda x: x[None], example)
            return jax.tree.map(lambda x: x[0], task_scores(apply, task, params, batch_of_one))

        return layouts.map_examples(scores_of, batch, batch_size, mesh)

    axes = (0, 0, None)
    evaluate_members = jax.vmap(evaluate, in_axes=axes)
    if mesh is None:
        return jax.jit(evaluate_members)
    evaluate_members = sharding.over_members(evaluate_members, mesh, axes, 0)
    return jax.jit(evaluate_members, out_shardings=NamedSharding(mesh, PartitionSpec()))
