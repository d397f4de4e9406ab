"""Optimizers of optax that a user trains with, and what identifies them.

A complete optimizer such as optax.adamw(1e-2) has its own learning rate and schedule, and its
updates are added to the parameters as they are. A function such as `lambda rate: optax.adamw(rate)`
returns the optimizer of a learning rate: it is given the rate of each member times the schedule.

Nothing here tries an optimizer on gradients. One that goes up the gradient, as does
optax.scale_by_adam() without a rate, trains uphill, and a warning at the end of the run says so.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import optax

from jaxformer.core import optim
from jaxformer.core.errors import UserError, did_you_mean, one_line
from jaxformer.core.partition import Partition
from jaxformer.io.atomic_files import sha256

EXAMPLES = "optax.adamw(1e-2), lambda rate: optax.adamw(rate), jaxformer.core.optim.AdamW()"
ANY_RATE = 1e-3  # with which a function is called to see what it returns


@dataclass(frozen=True)
class Complete:
    """An optax optimizer with its own learning rate, as the optimizer of one label."""

    transformation: optax.GradientTransformation
    identity: str  # a run resumes only with an optimizer of the same identity
    is_named: bool  # whether the identity contains a name that the user gave

    multiplier = 1.0  # factor of the learning rate for this label, as in `optim.AdamW`

    def transform(self) -> optax.GradientTransformation:
        """Returns a transformation whose updates point up the gradient."""
        return optax.chain(self.transformation, optax.scale(-1.0))

    def __repr__(self) -> str:
        return self.identity


@dataclass(frozen=True)
class OfRate:
    """A function from a learning rate to an optax optimizer, as the optimizer of one label."""

    of_rate: Callable[[Any], optax.GradientTransformation]
    identity: str
    is_named: bool

    def __repr__(self) -> str:
        return self.identity


def user_optimizers(
    optimizers: Mapping[str, Any],
    partitions: Iterable[Partition],
    shapes: Callable[[], Any],
    name: str | None,
) -> dict[str, Any]:
    """Returns {label: optimizer}, with an identity for every optimizer of optax.

    Args:
      optimizers: an AdamW, an SGD, an optax optimizer or a function of the rate for each label.
      partitions: the rules of all phases of the run.
      shapes: returns the shapes of the model's parameters.
      name: the user's name for the optimizers, or None.
    """
    resolved = {label: _checked(given) for label, given in optimizers.items()}
    of_optax = [label for label, given in resolved.items() if not _is_ours(given)]
    if name is not None and not of_optax:
        raise UserError("optimizer_name names an optax optimizer, but optimizer is not one.")
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise UserError(f"optimizer_name must be a text such as 'adamw-1e-2', got {name!r}.")
    if not of_optax:
        return resolved
    partitions = tuple(partitions)
    trained = {label for partition in partitions for label in partition.trained_labels}
    for label in of_optax:
        if label not in trained:
            hint = did_you_mean(label, trained)
            raise UserError(f"no rule has the label {label!r} of an optimizer.{hint}")
        partition = next(p for p in partitions if label in p.trained_labels)
        structure = _structure(label, resolved[label], partition, shapes())
        identity = f"optax:{name}" if name else f"optax:unnamed:{structure}"
        is_complete = isinstance(resolved[label], optax.GradientTransformation)
        kind = Complete if is_complete else OfRate
        resolved[label] = kind(resolved[label], identity, bool(name))
    return resolved


def _is_ours(optimizer: Any) -> bool:
    return isinstance(optimizer, optim.AdamW | optim.SGD)


def _checked(optimizer: Any) -> Any:
    """The optimizer of one label; raises UserError unless it is one."""
    if isinstance(optimizer, optax.MultiSteps):
        return optimizer.gradient_transformation()
    if _is_ours(optimizer) or isinstance(optimizer, optax.GradientTransformation):
        return optimizer
    if not callable(optimizer):
        raise UserError(
            f"optimizer must be one such as {EXAMPLES}; got {one_line(repr(optimizer), 60)}."
        )
    try:
        returned = optimizer(ANY_RATE)
    except Exception as error:
        raise UserError(
            f"optimizer is called with a learning rate, as {EXAMPLES.split(', ')[1]} is, and "
            f"raises {type(error).__name__}: {one_line(error, 160)}"
        ) from error
    if not isinstance(returned, optax.GradientTransformation):
        raise UserError(
            f"optimizer({ANY_RATE:g}) must return an optax optimizer, got "
            f"{one_line(repr(returned), 60)}."
        )
    return optimizer


def _structure(label: str, optimizer: Any, partition: Partition, shapes: Any) -> str:
    """Twelve hexadecimal digits that hash the paths and types of an optimizer's state.

    Raises:
      UserError: the optimizer needs more than gradients and parameters, or its rate as a number.
    """
    partition.labels(shapes)  # raises for parameters without a rule
    trainable, _ = partition.split(shapes)
    trainable = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, "float32"), trainable)
    others = dict.fromkeys(partition.trained_labels, optax.set_to_zero())

    def one_step(parameters, rate):
        is_complete = isinstance(optimizer, optax.GradientTransformation)
        transformation = optimizer if is_complete else optimizer(rate)
        masked = partition.optimizer(others | {label: transformation})
        state = masked.init(parameters)
        masked.update(parameters, state, parameters)  # the shapes of gradients are the same
        return state

    try:
        state = jax.eval_shape(one_step, trainable, jax.ShapeDtypeStruct((), "float32"))
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"the optimizer of the label {label!r} cannot be applied to gradients and parameters "
            f"alone, in a compiled step: {type(error).__name__}: {one_line(error, 200)}"
        ) from error
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    lines = [f"{jax.tree_util.keystr(path)} {leaf.dtype} {leaf.ndim}" for path, leaf in leaves]
    return sha256("\n".join(lines).encode())[:12]


def check_learning_rate(specs: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Returns whether the optimizers have their own learning rates; raises if that is ambiguous.

    Args:
      specs: {label: optimizer}.
      given: the arguments of `train` that set a rate, {name: value}; None where left out.
    """
    complete = [label for label, spec in specs.items() if isinstance(spec, Complete)]
    if not complete:
        return False
    if others := [label for label in specs if label not in complete]:
        raise UserError(
            f"the optimizer of the label {complete[0]!r} has its own learning rate, that of "
            f"{others[0]!r} takes it from train: give all labels an optimizer such as "
            "optax.adamw(1e-2), or none."
        )
    set_twice = [name for name, value in given.items() if value is not None]
    if set_twice:
        raise UserError(
            f"the optimizer has its own learning rate: leave out {', '.join(set_twice)}, or give a "
            "function of the rate, such as lambda rate: optax.adamw(rate)."
        )
    return True
