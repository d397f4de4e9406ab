"""Settings that lower the memory or the time of a step, with an estimate for each of them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.sharding import AxisType, Mesh

from jaxformer.core import sharding
from jaxformer.core.errors import UserError
from jaxformer.core.text_format import byte_size
from jaxformer.planning.cards import Card
from jaxformer.planning.operations import KERNEL, STACKING, WEIGHTS, Operation
from jaxformer.planning.roofline import class_times
from jaxformer.tasks.chunked_loss import check_head
from jaxformer.training.cost.memory import (
    DEFAULT_STATE_COPIES,
    state_bytes,
    step_bytes,
)
from jaxformer.training.setup import Setup

CHUNK = 4096  # the value of train.loss_chunk to try, in scored positions
FULL_PRECISION = (float, jnp.float32, jnp.dtype("float32"))
PARTS = 4  # train.accumulate is tried at this multiple of its value


class Option(NamedTuple):
    """A setting and the memory of a device with it, estimated from the shapes of arrays."""

    setting: str
    bytes: int
    bytes_today: int  # the same estimate without the setting

    def __str__(self) -> str:
        return (
            f"{self.setting}: about {byte_size(self.bytes)} instead of "
            f"{byte_size(self.bytes_today)}, estimated from shapes"
        )


class Saving(NamedTuple):
    """A setting that avoids a part of a step's time."""

    setting: str
    seconds: float  # of the forecast, at most
    reason: str

    def __str__(self) -> str:
        return f"up to {1000 * self.seconds:.3g} ms for {self.reason}; {self.setting} avoids it"


def savings(setup: Setup, program: Sequence[Operation], card: Card) -> tuple[Saving, ...]:
    """The settings of a model that avoid a part of the forecast, the largest part first.

    Args:
        setup: the setup that was compiled.
        program: the operations of its step.
        card: the accelerator.
    """
    spec: Any = getattr(setup.model, "spec", None)
    products = [step for step in program if step.flops and step.kind != KERNEL]
    # {(a field of the model, the value that avoids something): (operations, what they do)}
    candidates = {
        ("scan", False): (
            [step for step in program if step.kind == STACKING],
            "what a scan over blocks stacks for its backward pass",
        ),
        ("remat", False): (
            [step for step in program if step.is_recomputed],
            "activations that are computed twice",
        ),
        ("fused", True): (
            [step for step in program if step.kind == WEIGHTS],
            "attention weights in memory",
        ),
    }
    found = [
        Saving(f"model.{field}={value}", _seconds(card, steps), reason)
        for (field, value), (steps, reason) in candidates.items()
        if getattr(spec, field, value) != value
    ]
    if getattr(spec, "dtype", None) in FULL_PRECISION:
        slow = _seconds(card, [step for step in products if not step.is_half])
        fast = _seconds(card, [step._replace(dtype="bf16") for step in products])
        found.append(Saving("model.dtype=bfloat16", slow - fast, "matrix products in float32"))
    return tuple(sorted((s for s in found if s.seconds > 0), key=lambda saving: -saving.seconds))


def _seconds(card: Card, steps: Sequence[Operation]) -> float:
    return sum(part.forecast for part in class_times(card, steps))


def options(setup: Setup) -> tuple[Option, ...]:
    """Returns the settings that lower the estimate of a setup, the best first."""
    today = _estimate(setup)
    candidates = {
        name: changed for name, changed in _candidates(setup).items() if changed is not None
    }
    estimates = {name: _estimate(changed) for name, changed in candidates.items()}
    helpful = [Option(name, size, today) for name, size in estimates.items() if size < 0.95 * today]
    return tuple(sorted(helpful, key=lambda option: option.bytes))


def _candidates(setup: Setup) -> dict[str, Setup | None]:
    return {
        f"devices.fsdp={_batch_devices(setup)}": _with_fsdp(setup),
        "model.remat=True": _with_remat(setup),
        f"train.loss_chunk={CHUNK}": _with_loss_chunk(setup),
        f"train.accumulate={PARTS * setup.accumulate}": _with_accumulate(setup),
    }


def _estimate(setup: Setup) -> int:
    return DEFAULT_STATE_COPIES * state_bytes(setup) + step_bytes(setup)


def _batch_devices(setup: Setup) -> int:
    return setup.mesh.shape["data"] * setup.mesh.shape["fsdp"]


def _with_fsdp(setup: Setup) -> Setup | None:
    """Returns the setup with parameters split over all devices that split the batch."""
    sizes = dict(setup.mesh.shape)
    if sizes["data"] == 1:
        return None
    sizes |= {"data": 1, "fsdp": _batch_devices(setup)}
    grid = setup.mesh.devices.reshape(*sizes.values())
    mesh = Mesh(grid, sharding.AXES, axis_types=(AxisType.Auto,) * len(sharding.AXES))
    return setup._replace(mesh=mesh)


def _with_remat(setup: Setup) -> Setup | None:
    spec: Any = getattr(setup.model, "spec", None)
    if getattr(spec, "remat", True):
        return None
    return setup._replace(model=setup.model.clone(spec=replace(spec, remat=True)))


def _with_loss_chunk(setup: Setup) -> Setup | None:
    task, positions = setup.task, setup.data.batch_size * setup.task.n_scored
    if setup.loss_chunk or positions <= CHUNK or task.answers < CHUNK:
        return None
    try:  # a loss by chunks needs an output head of a known form
        check_head(setup.model)
    except UserError:
        return None
    return setup._replace(loss_chunk=CHUNK)


def _with_accumulate(setup: Setup) -> Setup | None:
    parts = PARTS * setup.accumulate
    if setup.data.batch_size % (_batch_devices(setup) * parts):
        return None
    return setup._replace(accumulate=parts)
