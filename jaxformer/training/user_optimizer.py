"""Optax transformations that a user trains with: which way their updates point, and their identity.

A complete optimizer such as optax.adamw(1e-2) has its own learning rate. Its updates descend and
are added to the parameters as they are. A transformation such as optax.scale_by_adam() has no
learning rate. Its updates point up the gradient, and a step adds them times -learning_rate.
`probe` tells the two apart and refuses what would train uphill.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxformer.core import optim, paths
from jaxformer.core.errors import UserError, did_you_mean, one_line
from jaxformer.core.partition import Partition
from jaxformer.io.atomic_files import sha256

MIN_PROBE_STEPS = 16
MAX_PROBE_STEPS = 1024  # until the first update that is not zero
PROBE_GRADIENT = 0.1
PROBE_PARAMETER = 0.5
PROBE_AXIS_LENGTH = 2  # of every axis of a probed parameter
ROUNDING = 1e-6  # smaller responses, relative to a parameter's largest, count as zero
EXAMPLES = "optax.adamw(1e-2), optax.scale_by_adam(), jaxformer.core.optim.AdamW()"


@dataclass(frozen=True)
class UserOptimizer:
    """An optax transformation as the optimizer of one label."""

    transformation: optax.GradientTransformation
    is_complete: bool  # it has its own learning rate and sign
    identity: str  # a run resumes only with an optimizer of the same identity
    is_named: bool  # whether the identity contains a name that the user gave

    multiplier = 1.0  # factor of the learning rate for this label, as in `optim.AdamW`

    def transform(self) -> optax.GradientTransformation:
        """Returns a transformation whose updates point up the gradient."""
        if self.is_complete:
            return optax.chain(self.transformation, optax.scale(-1.0))
        return self.transformation

    def __repr__(self) -> str:
        return self.identity


def as_transformation(optimizer: Any) -> Any:
    """Returns the optimizer of one label as an optax transformation, AdamW or SGD, or raises."""
    if isinstance(optimizer, optax.MultiSteps):
        return optimizer.gradient_transformation()
    if isinstance(optimizer, optim.AdamW | optim.SGD | optax.GradientTransformation):
        return optimizer
    description = one_line(repr(optimizer), 60)
    hint = f" Call {optimizer.__name__}(..)." if hasattr(optimizer, "__name__") else ""
    raise UserError(f"optimizer must be one such as {EXAMPLES}; got {description}.{hint}")


def user_optimizers(
    optimizers: Mapping[str, Any],
    partitions: Iterable[Partition],
    shapes: Callable[[], Any],
    name: str | None,
) -> dict[str, Any]:
    """Returns {label: optimizer}, with every optax transformation probed and given an identity.

    Args:
      optimizers: an AdamW, SGD or optax transformation for each label.
      partitions: the rules of all phases of the run.
      shapes: returns the shapes of the model's parameters.
      name: the user's name for the transformations, or None.
    """
    resolved = {label: as_transformation(given) for label, given in optimizers.items()}
    optax_labels = [label for label, tx in resolved.items() if _is_optax(tx)]
    if name is not None and not optax_labels:
        raise UserError("optimizer_name names an optax transformation, but optimizer is not one.")
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise UserError(f"optimizer_name must be a text such as 'adamw-1e-2', got {name!r}.")
    if not optax_labels:
        return resolved
    partitions = tuple(partitions)
    trained = {label for partition in partitions for label in partition.trained_labels}
    for label in optax_labels:
        if label not in trained:
            hint = did_you_mean(label, trained)
            raise UserError(f"no rule has the label {label!r} of an optimizer.{hint}")
    for partition in partitions:
        tiny = _tiny_parameters(partition, shapes())
        labels = partition.trained_labels
        for label in sorted(labels & {*optax_labels}):
            if _is_optax(resolved[label]):
                resolved[label] = _probed_optimizer(
                    label, resolved[label], labels, partition, tiny, name
                )
    return resolved


def _is_optax(optimizer: Any) -> bool:
    return isinstance(optimizer, optax.GradientTransformation)


def _probed_optimizer(
    label: str,
    transformation: optax.GradientTransformation,
    labels: Iterable[str],
    partition: Partition,
    parameters: Any,
    name: str | None,
) -> UserOptimizer:
    """Returns the optimizer of a label with its identity and whether it is complete.

    The probe freezes the parameters of the other labels.
    """
    others = dict.fromkeys(labels, optax.set_to_zero())
    masked = partition.optimizer(others | {label: transformation})
    try:
        is_complete = probe(masked, parameters)
        state = jax.eval_shape(masked.init, parameters)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"the optimizer of the label {label!r} cannot be applied to gradients and parameters "
            f"alone: {type(error).__name__}: {one_line(error, 200)}"
        ) from error
    identity = f"optax:{name}" if name else f"optax:unnamed:{_structure(state)}"
    return UserOptimizer(transformation, is_complete, identity, bool(name))


def probe(transformation: optax.GradientTransformation, parameters: Any) -> bool:
    """Returns whether the transformation is a complete optimizer, whose updates descend.

    It is applied from its initial state to a constant gradient and to that gradient's negative. The
    difference of the two updates is the response to the gradient, free of weight decay.

    Raises:
      UserError: the responses are zero for MAX_PROBE_STEPS steps, not finite, or of both signs.
    """
    gradient = jax.tree.map(lambda leaf: jnp.full_like(leaf, PROBE_GRADIENT), parameters)
    opposite = jax.tree.map(jnp.negative, gradient)
    states = [transformation.init(parameters)] * 2
    names = [*paths.flatten(parameters)]

    @jax.jit
    def step(states):
        applied = [
            transformation.update(g, state, parameters)
            for g, state in zip((gradient, opposite), states, strict=True)
        ]
        (updates, state), (opposite_updates, opposite_state) = applied
        differences = jax.tree.map(lambda a, b: (a - b).mean(), updates, opposite_updates)
        response = paths.flatten(differences)
        return jnp.stack([response[name] for name in names]), [state, opposite_state]

    responses = []
    for i in range(MAX_PROBE_STEPS):
        response_P, states = step(states)
        responses.append(np.asarray(response_P))
        if i + 1 >= MIN_PROBE_STEPS and any(r.any() for r in responses):
            break
    return _descends(np.stack(responses), names)


def _descends(responses_SxP: np.ndarray, names: list[str]) -> bool:
    """Returns whether the responses at S steps of P parameters are negative; raises if mixed."""
    if not np.isfinite(responses_SxP).all():
        raise UserError(
            "the optimizer gives nan or infinity for a constant gradient: lower its learning rate."
        )
    largest_P = np.abs(responses_SxP).max(0)
    signs_SxP = np.sign(responses_SxP) * (np.abs(responses_SxP) > ROUNDING * largest_P)
    if not signs_SxP.any():
        raise UserError(
            f"the optimizer changes nothing in {len(responses_SxP):,} steps, so that its sign is "
            "unknown. Give one that moves earlier: a shorter warm-up, a smaller every_k_schedule."
        )
    goes_up, goes_down = (signs_SxP > 0).any(0), (signs_SxP < 0).any(0)
    if goes_up.any() and goes_down.any():
        up, down = names[int(goes_up.argmax())], names[int(goes_down.argmax())]
        raise UserError(
            f"the optimizer moves both up and down the gradient ({up} up, {down} down): it would "
            "train uphill. optax.masked passes the gradient of other parameters through: give them "
            "a label, such as 'frozen', by the rules of the partition."
        )
    return bool(goes_down.any())


def _tiny_parameters(partition: Partition, shapes: Any) -> Any:
    """Returns the trainable parameters with short axes, so that masks by path still match."""
    partition.labels(shapes)  # raises for parameters without a rule
    trainable, _ = partition.split(shapes)

    def tiny(leaf: Any) -> jax.Array:
        shape = tuple(min(length, PROBE_AXIS_LENGTH) for length in leaf.shape)
        return jnp.full(shape, PROBE_PARAMETER, jnp.float32)

    return jax.tree.map(tiny, trainable)


def _structure(state: Any) -> str:
    """Returns twelve hexadecimal digits that hash the paths and types of an optimizer's state."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    lines = [f"{jax.tree_util.keystr(path)} {leaf.dtype} {leaf.ndim}" for path, leaf in leaves]
    return sha256("\n".join(lines).encode())[:12]


def check_learning_rate(specs: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Returns whether the optimizers have their own learning rates; raises if that is ambiguous.

    Args:
      specs: {label: optimizer}.
      given: the arguments of `train` that set a rate, {name: value}; None where left out.
    """
    complete = {
        label: isinstance(spec, UserOptimizer) and spec.is_complete for label, spec in specs.items()
    }
    if not any(complete.values()):
        return False
    label_with_rate = next(label for label, has_rate in complete.items() if has_rate)
    labels_without_rate = [label for label, has_rate in complete.items() if not has_rate]
    if labels_without_rate:
        raise UserError(
            f"the optimizer of the label {label_with_rate!r} has its own learning rate, that of "
            f"{labels_without_rate[0]!r} has none. Give all labels a complete "
            "optimizer such as optax.adamw(1e-2), or none."
        )
    set_twice = [name for name, value in given.items() if value is not None]
    if set_twice:
        raise UserError(
            f"the optimizer has its own learning rate: leave out {', '.join(set_twice)}, or give a "
            "transformation without one, such as optax.scale_by_adam()."
        )
    return True
