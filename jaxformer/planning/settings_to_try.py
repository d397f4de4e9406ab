"""Settings that lower the memory of a step, with an estimate of the memory under each of them."""

from dataclasses import replace
from typing import Any, NamedTuple

from jax.sharding import AxisType, Mesh

from jaxformer.core import sharding
from jaxformer.core.errors import UserError
from jaxformer.core.text_format import byte_size
from jaxformer.tasks.chunked_loss import check_head
from jaxformer.training.cost.memory import (
    DEFAULT_STATE_COPIES,
    state_bytes,
    step_bytes,
)
from jaxformer.training.setup import Setup

CHUNK = 4096  # the value of train.loss_chunk to try, in scored positions
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
