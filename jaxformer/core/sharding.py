"""The device mesh, and the shardings of parameters, training states and batches on it.

The mesh has four axes:

    members each device has complete members of the population, which do not communicate
    data    each device has a copy of the model and a part of the batch
    fsdp    batch and parameters are split; a layer's weights are gathered when it is used
    tensor  matrices are split by columns (query, key, value, gate, in) or rows (out)

The same program runs on every mesh, also on a single device: jit follows the NamedShardings and
inserts the communication.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxformer.core import paths
from jaxformer.core.errors import UserError, setting

AXES = ("members", "data", "fsdp", "tensor")
BATCH_AXES = ("data", "fsdp")
AUTOMATIC = ("data", "members")  # axes whose size is chosen if it is 0
Axis = str | tuple[str, ...] | None  # one mesh axis, several, or none
Rules = tuple[tuple[str, tuple[Axis, ...]], ...]
# (pattern of paths, mesh axes of each dimension). The first match decides. A mesh axis that does
# not divide its dimension is left out.
RULES: Rules = (
    (".*/(query|key|value|gate|in)/kernel", ("fsdp", "tensor")),
    (".*/out/kernel", ("tensor", "fsdp")),
    ("embed/embedding", ("tensor", "fsdp")),
    ("positions/embedding", (None, ("fsdp", "tensor"))),
    ("unembed/kernel", ("fsdp", "tensor")),
    (".*", ()),
)


def make_mesh(
    data: int = 0,
    fsdp: int = 1,
    tensor: int = 1,
    members: int = 1,
    *,
    batch_size: int = 0,
    population: int = 1,
    devices: Sequence[Any] | None = None,
) -> Mesh:
    """Returns a mesh of all devices, or of as many as can be used.

    Args:
        data: size of the axis; 0 selects the largest size that the remaining devices allow and for
            which data x fsdp divides the batch.
        fsdp: size of the axis.
        tensor: size of the axis.
        members: size of the axis; 0 selects the largest possible size that divides the population.
        batch_size: examples in a batch; 0 if unknown.
        population: number of members.
        devices: the devices of another machine; None: those of this job.
    """
    machine = "this machine" if devices is None else "the target"
    all_devices = jax.devices() if devices is None else devices
    n = len(all_devices)
    sizes = dict(data=data, fsdp=fsdp, tensor=tensor, members=members)
    for name, size in sizes.items():
        if size < (0 if name in AUTOMATIC else 1):
            raise UserError(
                f"{setting(f'devices.{name}')} must be at least 1 ({', '.join(AUTOMATIC)}: 0 for "
                f"automatic), got {size}."
            )
    if not members:
        available = max(n // (max(data, 1) * fsdp * tensor), 1)
        members = _divisors(population, available)[-1]
    if population % members:
        possible = ", ".join(map(str, _divisors(population, n)))
        raise UserError(
            f"{setting('devices.members')} = {members} does not divide the population of "
            f"{population} (seeds x learning rates) on {n} devices; possible: {possible}."
        )
    if not data:
        data = max(n // (members * fsdp * tensor), 1)
        # With several processes, a smaller axis would leave out one of them.
        if jax.process_count() == 1:
            data = max([d for d in range(1, data + 1) if batch_size % (d * fsdp) == 0], default=1)
    sizes = dict(members=members, data=data, fsdp=fsdp, tensor=tensor)
    needed = math.prod(sizes.values())
    shape = " x ".join(f"{axis}={size}" for axis, size in sizes.items())
    if needed > n:
        raise UserError(f"a mesh of {shape} needs {needed} devices, {machine} has {n}.")
    grid = np.array(all_devices[:needed]).reshape(*sizes.values())
    if len({device.process_index for device in grid.flat}) < jax.process_count():
        raise UserError(
            f"a mesh of {shape} leaves out a process of this job, which has {jax.process_count()} "
            f"processes and {n} devices: set {setting('devices.data')}=0."
        )
    # Auto: jit decides the layout of intermediates (jax.make_mesh gives Explicit axes by default).
    return Mesh(grid, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def _divisors(n: int, largest: int) -> list[int]:
    """Returns the divisors of n from 1 to `largest`."""
    return [d for d in range(1, min(n, largest) + 1) if n % d == 0]


def over_members(function: Callable, mesh: Mesh, ins: tuple, outs: Any) -> Callable:
    """Returns a function that splits a population over the axis "members"; for use inside jit.

    Args:
        function: a function of trees whose leading axis counts members.
        mesh: the device mesh.
        ins: for each argument 0 if it has a leading axis of members, otherwise None, as in vmap.
        outs: the same for the result.
    """
    parts = mesh.shape["members"]
    if parts == 1:
        return function

    def spread(*arguments):
        # (members, ..) -> (devices, members of a device, ..), whose first axis jit splits.
        by_device = [
            _map_members(axes, tree, lambda x: x.reshape(parts, -1, *x.shape[1:]))
            for axes, tree in zip(ins, arguments, strict=True)
        ]
        results = jax.vmap(function, ins, outs, spmd_axis_name="members")(*by_device)
        return _map_members(outs, results, lambda x: x.reshape(-1, *x.shape[2:]))

    return spread


def _map_members(axes: Any, tree: Any, change: Callable) -> Any:
    """Changes the leaves of a tree for which the prefix tree `axes` is not None."""
    return jax.tree.map(
        lambda axis, part: part if axis is None else jax.tree.map(change, part),
        axes,
        tree,
        is_leaf=lambda axis: axis is None,
    )


def check_batch(batch_size: int, sizes: Mapping[str, int], accumulate: int = 1) -> None:
    """Raises a UserError unless the batch can be split evenly over the mesh.

    Args:
        batch_size: examples per step.
        sizes: the size of each mesh axis, `mesh.shape`.
        accumulate: parts of a batch that are computed one after the other.
    """
    parts = int(np.prod([sizes[axis] for axis in BATCH_AXES]))
    if batch_size % (parts * accumulate):
        times = f" times {setting('train.accumulate')} = {accumulate}" if accumulate > 1 else ""
        raise UserError(
            f"{setting('train.batch_size')} = {batch_size} is not a multiple of the {parts} "
            f"devices over which the mesh splits a batch (data x fsdp){times}."
        )


def parameter_sharding(path: str, shape: tuple[int, ...], mesh: Mesh, lead: int = 0):
    """Returns the sharding of a parameter.

    Args:
        path: the address of the parameter, such as "block_0/attn/query/kernel".
        shape: its shape, with the leading axes.
        lead: 1 if the first axis counts members, else 0.
    """
    axes = next(axes for pattern, axes in RULES if re.fullmatch(pattern, path))
    parts = [
        axes_that_divide(size, axis, mesh) for size, axis in zip(shape[lead:], axes, strict=False)
    ]
    leading_parts = [_members(mesh)] * lead
    return NamedSharding(mesh, P(*leading_parts, *parts))


def state_sharding(state: Any, tx: optax.GradientTransformation, mesh: Mesh):
    """Returns the shardings of a `TrainState`; moments have the shardings of their parameters.

    Args:
        state: a `TrainState` of arrays or of their shapes.
        tx: the optimizer of the state.
        mesh: the device mesh.
    """
    on_all_devices = NamedSharding(mesh, P())

    def shardings_of(params):
        return paths.map_with_path(
            lambda path, leaf: parameter_sharding(path, leaf.shape, mesh, lead=1), params
        )

    def moment_sharding(moment: Any, parameter: Any, sharding: NamedSharding) -> Any:
        # optax puts a MaskedNode where a parameter belongs to another label.
        if isinstance(moment, optax.MaskedNode):
            return moment
        # Adafactor's moments have other shapes than their parameters.
        return sharding if moment.shape == parameter.shape else on_all_devices

    trainable = shardings_of(state.trainable)
    opt_state = optax.tree_map_params(
        tx,
        moment_sharding,
        state.opt_state,
        state.trainable,
        trainable,
        is_leaf=lambda leaf: isinstance(leaf, optax.MaskedNode),
        transform_non_params=lambda _: on_all_devices,
    )
    return state._replace(
        step=on_all_devices,
        trainable=trainable,
        frozen=shardings_of(state.frozen),
        opt_state=opt_state,
        learning_rate=on_all_devices,
        diverged_at=on_all_devices,
    )


def put_like(tree: Any, like: Any) -> Any:
    """Puts host arrays on devices with the shardings of `like`. A process passes whole arrays."""
    return jax.tree.map(
        lambda x, old: jax.make_array_from_callback(
            old.shape, old.sharding, lambda index: np.asarray(x)[index]
        ),
        tree,
        like,
    )


@jax.jit
def copy_arrays(tree: Any) -> Any:
    """Copies all arrays of a tree, in one compiled program."""
    return jax.tree.map(jnp.copy, tree)


def replicate(tree: Any, mesh: Mesh) -> Any:
    """Replicates arrays on every device, inside jit."""
    return jax.lax.with_sharding_constraint(tree, NamedSharding(mesh, P()))


def shard_batch(batch: Any, mesh: Mesh) -> Any:
    """Splits (members, batch, ...) arrays along the members and the batch, inside jit."""
    return jax.lax.with_sharding_constraint(
        batch, NamedSharding(mesh, P(_members(mesh), BATCH_AXES))
    )


def axes_that_divide(size: int, axis: Axis, mesh: Any) -> Axis:
    """Returns `axis`, the mesh axes that split a dimension; None if they do not divide its size."""
    parts = math.prod(mesh.shape[name] for name in _axis_names(axis))
    return axis if size % parts == 0 else None


def _members(mesh: Mesh) -> str | None:
    """Returns the mesh axis that splits the members, None if its size is 1."""
    return "members" if mesh.shape["members"] > 1 else None


def _axis_names(axis: Axis) -> tuple[str, ...]:
    return (axis,) if isinstance(axis, str) else axis or ()
