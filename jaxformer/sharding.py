"""One device or many: a mesh with three axes and path rules that say how parameters lie on it.

    data    copies of the model, each with a part of the batch
    fsdp    the batch and the parameters are cut; a layer's weights are gathered when it is used
    tensor  matrices are cut by columns (query, key, value, gate, in) or rows (out)

The same program runs on every mesh, the one with a single device included: jit places what
NamedShardings say and inserts the communication. (pjit is jit today, and pmap is superseded.)
"""

import re
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxformer import paths
from jaxformer.errors import UserError

AXES = ("data", "fsdp", "tensor")
BATCH_AXES = ("data", "fsdp")
Axis = str | tuple[str, ...] | None  # one mesh axis, several, or none
Rules = tuple[tuple[str, tuple[Axis, ...]], ...]
# The first match decides; an axis that does not divide its dimension is left out.
RULES: Rules = (
    (".*/(query|key|value|gate|in)/kernel", ("fsdp", "tensor")),
    (".*/out/kernel", ("tensor", "fsdp")),
    ("(embed|positions)/embedding", (None, ("fsdp", "tensor"))),
    ("unembed/kernel", ("fsdp", "tensor")),
    (".*", ()),
)


def make_mesh(data: int = 0, fsdp: int = 1, tensor: int = 1) -> Mesh:
    """The mesh of all devices; data=0 takes those that the other axes leave."""
    n = jax.device_count()
    for name, size in (("data", data), ("fsdp", fsdp), ("tensor", tensor)):
        if size < (0 if name == "data" else 1):
            raise UserError(
                f"devices.{name} must be at least 1 (data: 0 for the rest), got {size}."
            )
    data = data or max(n // (fsdp * tensor), 1)
    if data * fsdp * tensor > n:
        raise UserError(
            f"a mesh of data={data} x fsdp={fsdp} x tensor={tensor} needs {data * fsdp * tensor} "
            f"devices, this machine has {n}."
        )
    # Auto: jit decides the layout of intermediates (make_mesh gives Explicit axes by default).
    devices = np.array(jax.devices()[: data * fsdp * tensor]).reshape(data, fsdp, tensor)
    if len({device.process_index for device in devices.flat}) < jax.process_count():
        raise UserError(
            f"a mesh of data={data} x fsdp={fsdp} x tensor={tensor} leaves out a process of this "
            f"job, which has {jax.process_count()} processes and {n} devices: take devices.data=0."
        )
    return Mesh(devices, AXES, axis_types=(AxisType.Auto,) * 3)


def check_batch(batch_size: int, sizes: Mapping[str, int]) -> None:
    """Raises unless the batch can be cut evenly; `sizes` is mesh.shape."""
    parts = int(np.prod([sizes[axis] for axis in BATCH_AXES]))
    if batch_size % parts:
        raise UserError(
            f"train.batch_size = {batch_size} is not a multiple of the {parts} devices over which "
            f"the mesh cuts a batch (data x fsdp)."
        )


def parameter_sharding(path: str, shape: tuple[int, ...], mesh: Mesh, lead: int = 0):
    """How a parameter lies on the mesh; `lead` leading axes (members) are not cut."""
    axes = next(axes for pattern, axes in RULES if re.fullmatch(pattern, path))
    kept = []
    for size, axis in zip(shape[lead:], axes, strict=False):
        names = _names(axis)
        divides = names and size % int(np.prod([mesh.shape[name] for name in names])) == 0
        kept.append(axis if divides else None)
    return NamedSharding(mesh, P(*[None] * lead, *kept))


def state_sharding(state: Any, tx: optax.GradientTransformation, mesh: Mesh):
    """The shardings of a `TrainState` of shapes: moments lie where their parameters do."""
    whole = NamedSharding(mesh, P())

    def of(params):
        return paths.map_with_path(
            lambda path, leaf: parameter_sharding(path, leaf.shape, mesh, lead=1), params
        )

    trainable = of(state.trainable)
    opt_state = optax.tree_map_params(
        tx,
        # A label's own optimizer has empty places where the other labels' parameters are.
        lambda leaf, sharding: leaf if isinstance(leaf, optax.MaskedNode) else sharding,
        state.opt_state,
        trainable,
        is_leaf=lambda leaf: isinstance(leaf, optax.MaskedNode),
        transform_non_params=lambda _: whole,
    )
    return state._replace(
        step=whole,
        trainable=trainable,
        frozen=of(state.frozen),
        opt_state=opt_state,
        learning_rate=whole,
        diverged_at=whole,
    )


def place(tree: Any, like: Any) -> Any:
    """Arrays of the host, laid out as the arrays of `like`; every process gives the whole."""
    return jax.tree.map(
        lambda x, old: jax.make_array_from_callback(
            old.shape, old.sharding, lambda index: np.asarray(x)[index]
        ),
        tree,
        like,
    )


def everywhere(tree: Any, mesh: Mesh) -> Any:
    """Inside jit: every device has the whole of these arrays."""
    return jax.lax.with_sharding_constraint(tree, NamedSharding(mesh, P()))


def shard_batch(batch: Any, mesh: Mesh) -> Any:
    """Inside jit: (members, batch, ...) arrays are cut along the batch."""
    return jax.lax.with_sharding_constraint(batch, NamedSharding(mesh, P(None, BATCH_AXES)))


def _names(axis: Axis) -> tuple[str, ...]:
    return (axis,) if isinstance(axis, str) else axis or ()
