"""Optimizers: a schedule with peak 1, AdamW or SGD for each label of a `Partition`, and clipping.

The learning rate is no part of the optimizer. `training.step` multiplies the update by the rate in
the state, so that one compiled program trains a population with several rates.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxformer.core.errors import UserError, check_choice, check_range, setting
from jaxformer.core.partition import Partition


@dataclass(frozen=True)
class AdamW:
    """AdamW that does not decay vectors (biases, norm gains), as in Hugging Face's trainer."""

    b1: float = 0.9  # decay of the mean of gradients
    b2: float = 0.999  # decay of the mean of squared gradients
    eps: float = 1e-8  # added to the root of the mean square
    weight_decay: float = 1e-3  # of matrices; the update subtracts learning rate x decay x weight
    multiplier: float = 1.0  # factor of the learning rate for this label

    def __post_init__(self):
        for name in ("b1", "b2"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"{name} of adamw must be in [0, 1), got {getattr(self, name)}.")
        if not self.eps > 0:
            raise UserError(f"eps of adamw must be above 0, got {self.eps}.")
        check_range("weight_decay of adamw", self.weight_decay, 0)
        check_range("multiplier of adamw", self.multiplier, 0)

    def transform(self) -> optax.GradientTransformation:
        return optax.chain(
            optax.scale_by_adam(self.b1, self.b2, self.eps),
            optax.add_decayed_weights(self.weight_decay, mask=_matrix_mask),
        )


@dataclass(frozen=True)
class SGD:
    """SGD with momentum. The decay is added to the gradient, of vectors too."""

    momentum: float = 0.0  # factor of the accumulated earlier gradients
    weight_decay: float = 0.0  # of matrices and vectors
    multiplier: float = 1.0  # factor of the learning rate for this label

    def __post_init__(self):
        if not 0 <= self.momentum < 1:
            raise UserError(f"momentum of sgd must be in [0, 1), got {self.momentum}.")
        check_range("weight_decay of sgd", self.weight_decay, 0)
        check_range("multiplier of sgd", self.multiplier, 0)

    def transform(self) -> optax.GradientTransformation:
        return optax.chain(
            optax.add_decayed_weights(self.weight_decay),
            optax.trace(self.momentum) if self.momentum else optax.identity(),
        )


def schedule(name: str, steps: int, warmup: int) -> optax.Schedule:
    """Returns a schedule with peak 1: a linear warm-up, then constant or down to 0.

    Args:
        name: "constant", "cosine" or "linear".
        steps: length of the run.
        warmup: steps of the warm-up.
    """
    check_range(setting("optim.warmup"), warmup, 0)
    if warmup > steps:
        raise UserError(
            f"the warm-up ({warmup} steps) must not exceed the run ({steps} steps): lower "
            f"{setting('optim.warmup')} or raise {setting('train.steps')}."
        )
    rest = max(steps - warmup, 1)
    after = {
        "constant": optax.constant_schedule(1.0),
        "cosine": optax.cosine_decay_schedule(1.0, rest),
        "linear": optax.linear_schedule(1.0, 0.0, rest),
    }
    check_choice("schedule", name, after)
    # The factor of step t < warmup is (t + 1) / warmup, hence not zero at step 0.
    rise = optax.linear_schedule(1.0 / max(warmup, 1), 1.0, max(warmup - 1, 1))
    return optax.join_schedules([rise, after[name]], [warmup])


def optimizer(
    partition: Partition, specs: Mapping[str, Any], clip: float, factor: optax.Schedule
) -> optax.GradientTransformation:
    """Returns the optimizer of the trained parameters.

    It clips the global norm, then applies the transformation of each label, then the schedule. An
    update already has the sign of descent: new parameters are params + learning_rate * update. Only
    the updates of functions of the rate have it in them (`updates_at_rate`).

    Args:
        partition: maps parameters to labels.
        specs: {label: optimizer}: an AdamW or SGD, or an object whose `of_rate` returns the optax
            optimizer of a learning rate.
        clip: largest global norm of the gradient; 0 turns clipping off.
        factor: the schedule with peak 1, which multiplies every update, or every rate.
    """
    check_range(setting("optim.clip"), clip, 0)
    if any(hasattr(spec, "of_rate") for spec in specs.values()):
        functions = {label: _of_rate(spec) for label, spec in specs.items()}
        return _optimizer_of_rate(partition, functions, clip, factor)
    by_label = {
        label: optax.chain(spec.transform(), optax.scale(-spec.multiplier))
        for label, spec in specs.items()
    }
    return optax.chain(
        optax.clip_by_global_norm(clip) if clip else optax.identity(),
        partition.optimizer(by_label),
        optax.scale_by_schedule(factor),
    )


def _of_rate(spec: Any) -> Callable[[Any], optax.GradientTransformation]:
    """A function that returns the optimizer of a learning rate."""
    if hasattr(spec, "of_rate"):
        return spec.of_rate
    return lambda rate: optax.chain(spec.transform(), optax.scale(-spec.multiplier * rate))


class TakesRate(NamedTuple):
    """A transformation whose `update` takes the learning rate as its last argument."""

    init: Callable[[Any], Any]
    update: Callable[..., tuple[Any, Any]]


def _optimizer_of_rate(
    partition: Partition, functions: Mapping[str, Any], clip: float, factor: optax.Schedule
) -> Any:
    def at_rate(rate: Any) -> optax.GradientTransformation:
        by_label = {label: of_rate(rate) for label, of_rate in functions.items()}
        clipping = optax.clip_by_global_norm(clip) if clip else optax.identity()
        return optax.chain(clipping, partition.optimizer(by_label))

    def init(params):
        return jnp.zeros((), jnp.int32), at_rate(1.0).init(params)

    def update(gradient, state, params, learning_rate):
        steps_done, inner = state
        updates, inner = at_rate(learning_rate * factor(steps_done)).update(gradient, inner, params)
        return updates, (steps_done + 1, inner)

    return TakesRate(init, update)


def updates_at_rate(
    tx: Any, gradient: Any, state: Any, params: Any, learning_rate: jax.Array
) -> tuple[Any, Any]:
    """Returns what is added to the parameters, and the new state of the optimizer.

    Args:
        tx: an optimizer that `optimizer` returns.
        gradient: of the trained parameters.
        state: the state of the optimizer.
        params: the trained parameters.
        learning_rate: of one member, a scalar.
    """
    if isinstance(tx, TakesRate):
        return tx.update(gradient, state, params, learning_rate)
    updates, state = tx.update(gradient, state, params)
    return jax.tree.map(lambda u: learning_rate.astype(u.dtype) * u, updates), state


def _matrix_mask(params):
    return jax.tree.map(lambda leaf: leaf.ndim >= 2, params)
