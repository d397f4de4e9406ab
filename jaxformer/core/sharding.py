"""One device or many: a mesh with four axes and path rules that say how parameters lie on it.

    members every device has some members of the population, whole, and no word of the others
    data    copies of the model, each with a part of the batch
    fsdp    the batch and the parameters are cut; a layer's weights are gathered when it is used
    tensor  matrices are cut by columns (query, key, value, gate, in) or rows (out)

The same program runs on every mesh, the one with a single device included: jit places what
NamedShardings say and inserts the communication. (pjit is jit today, and pmap is superseded.)
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxformer.core import paths
from jaxformer.core.errors import UserError

AXES = ("members", "data", "fsdp", "tensor")
BATCH_AXES = ("data", "fsdp")
FREE = ("data", "members")  # axes of which 0 means as many devices as there is use for
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


def make_mesh(
    data: int = 0,
    fsdp: int = 1,
    tensor: int = 1,
    members: int = 1,
    *,
    batch_size: int = 0,
    population: int = 1,
) -> Mesh:
    """The mesh of all devices, or of those that have something to do.

    members=0 takes as many as divide the population. data=0 then takes those that the other axes
    leave, as many as divide the batch (if that is given).
    """
    n, sizes = jax.device_count(), dict(data=data, fsdp=fsdp, tensor=tensor, members=members)
    for name, size in sizes.items():
        if size < (0 if name in FREE else 1):
            raise UserError(
                f"devices.{name} must be at least 1 ({', '.join(FREE)}: 0 for what is left), got "
                f"{size}."
            )
    members = members or _divisors(population, max(n // (max(data, 1) * fsdp * tensor), 1))[-1]
    if population % members:
        possible = ", ".join(map(str, _divisors(population, n)))
        raise UserError(
            f"devices.members = {members} does not divide the population of {population} (seeds x "
            f"learning rates) on {n} devices; possible: {possible}."
        )
    if not data:
        data = max(n // (members * fsdp * tensor), 1)
        if jax.process_count() == 1:  # else a process would be left out
            data = max([d for d in range(1, data + 1) if batch_size % (d * fsdp) == 0], default=1)
    sizes = dict(members=members, data=data, fsdp=fsdp, tensor=tensor)
    wanted, words = math.prod(sizes.values()), " x ".join(f"{k}={v}" for k, v in sizes.items())
    if wanted > n:
        raise UserError(f"a mesh of {words} needs {wanted} devices, this machine has {n}.")
    # Auto: jit decides the layout of intermediates (make_mesh gives Explicit axes by default).
    devices = np.array(jax.devices()[:wanted]).reshape(*sizes.values())
    if len({device.process_index for device in devices.flat}) < jax.process_count():
        raise UserError(
            f"a mesh of {words} leaves out a process of this job, which has {jax.process_count()} "
            f"processes and {n} devices: take devices.data=0."
        )
    return Mesh(devices, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def _divisors(n: int, most: int) -> list[int]:
    return [d for d in range(1, min(n, most) + 1) if n % d == 0]


def over_members(function: Callable, mesh: Mesh, ins: tuple, outs: Any) -> Callable:
    """Inside jit: the function, called on every device with the members that lie there.

    `ins` and `outs` say, as in vmap, which trees have a leading axis of members (0, or None).
    """
    parts = mesh.shape["members"]
    if parts == 1:
        return function

    def spread(*arguments):
        # (members, ..) -> (devices, members of a device, ..), of which jit cuts the first axis.
        cut = [
            _along(axes, tree, lambda x: x.reshape(parts, -1, *x.shape[1:]))
            for axes, tree in zip(ins, arguments, strict=True)
        ]
        found = jax.vmap(function, ins, outs, spmd_axis_name="members")(*cut)
        return _along(outs, found, lambda x: x.reshape(-1, *x.shape[2:]))

    return spread


def _along(axes: Any, tree: Any, change: Callable) -> Any:
    """The tree with its leaves changed where its prefix `axes` is 0 and not None."""
    return jax.tree.map(
        lambda axis, part: part if axis is None else jax.tree.map(change, part),
        *(axes, tree),
        is_leaf=lambda axis: axis is None,
    )


def check_batch(batch_size: int, sizes: Mapping[str, int], accumulate: int = 1) -> None:
    """Raises unless the batch can be cut evenly; `sizes` is mesh.shape."""
    parts = int(np.prod([sizes[axis] for axis in BATCH_AXES]))
    if batch_size % (parts * accumulate):
        times = f" times train.accumulate = {accumulate}" if accumulate > 1 else ""
        raise UserError(
            f"train.batch_size = {batch_size} is not a multiple of the {parts} devices over which "
            f"the mesh cuts a batch (data x fsdp){times}."
        )


def parameter_sharding(path: str, shape: tuple[int, ...], mesh: Mesh, lead: int = 0):
    """How a parameter lies on the mesh; `lead` is 1 if it has a leading axis of members."""
    axes = next(axes for pattern, axes in RULES if re.fullmatch(pattern, path))
    kept = []
    for size, axis in zip(shape[lead:], axes, strict=False):
        names = _names(axis)
        divides = names and size % int(np.prod([mesh.shape[name] for name in names])) == 0
        kept.append(axis if divides else None)
    return NamedSharding(mesh, P(*[_members(mesh)] * lead, *kept))


def state_sharding(state: Any, tx: optax.GradientTransformation, mesh: Mesh):
    """The shardings of a `TrainState` of shapes: moments lie where their parameters do."""
    whole = NamedSharding(mesh, P())

    def of(params):
        return paths.map_with_path(
            lambda path, leaf: parameter_sharding(path, leaf.shape, mesh, lead=1), params
        )

    def of_moment(moment: Any, parameter: Any, sharding: NamedSharding) -> Any:
        # A label's own optimizer has empty places where the other labels' parameters are.
        if isinstance(moment, optax.MaskedNode):
            return moment
        # Adafactor's moments have other shapes than their parameters.
        return sharding if moment.shape == parameter.shape else whole

    trainable = of(state.trainable)
    opt_state = optax.tree_map_params(
        tx,
        of_moment,
        state.opt_state,
        state.trainable,
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


@jax.jit
def copied(tree: Any) -> Any:
    """The same arrays in memory of their own; one program for all."""
    return jax.tree.map(jnp.copy, tree)


def everywhere(tree: Any, mesh: Mesh) -> Any:
    """Inside jit: every device has the whole of these arrays."""
    return jax.lax.with_sharding_constraint(tree, NamedSharding(mesh, P()))


def shard_batch(batch: Any, mesh: Mesh) -> Any:
    """Inside jit: (members, batch, ...) arrays are cut along the batch and the members."""
    return jax.lax.with_sharding_constraint(
        batch, NamedSharding(mesh, P(_members(mesh), BATCH_AXES))
    )


def _members(mesh: Mesh) -> str | None:
    """The mesh axis on which members lie, if they are apart."""
    return "members" if mesh.shape["members"] > 1 else None


def _names(axis: Axis) -> tuple[str, ...]:
    return (axis,) if isinstance(axis, str) else axis or ()
