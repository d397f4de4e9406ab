"""Layouts of traced values: which mesh axes split an activation, and loops over parts of a batch.

The functions take the mesh from the sharding of a value: JAX passes the mesh of the parameters on
to every value that is computed from them. Without a mesh, or on one device, they change nothing.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxformer.core.sharding import AXES, BATCH_AXES, Axis, axes_that_divide


def shard_activation(x: jax.Array, *axes: Axis) -> jax.Array:
    """Splits an activation along the batch, its first axis, on the mesh of the parameters.

    Without a constraint the compiler chooses the layout. It may then split the features, with the
    whole batch on every device. A constraint changes no value. Under `map_examples` this function
    receives a batch of one row; the `spmd_axis_name` of the vmap splits the examples.

    Args:
        x: an activation that was computed from sharded parameters. Arrays on a single device are
            returned unchanged.
        axes: the mesh axes of the dimensions after the batch; by default they are not split.
    """
    mesh = mesh_of(x)
    if mesh is None:
        return x
    all_axes = (BATCH_AXES, *axes)
    parts = [
        axes_that_divide(size, axis, mesh) for size, axis in zip(x.shape, all_axes, strict=False)
    ]
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*parts)))


def gather_parameter(parameter: jax.Array, *axes: Axis) -> jax.Array:
    """Gathers a parameter: XLA then communicates the parameter, not the activations it multiplies.

    Args:
        parameter: a parameter that may be split along the axis "fsdp".
        axes: the mesh axes that split its dimensions after the gather.
    """
    mesh = mesh_of(parameter)
    if mesh is None:
        return parameter
    parts = [
        axes_that_divide(size, axis, mesh) for size, axis in zip(parameter.shape, axes, strict=True)
    ]
    return jax.lax.with_sharding_constraint(parameter, NamedSharding(mesh, P(*parts)))


def split_last_axis(x: jax.Array, axis: Axis) -> jax.Array:
    """Splits the last dimension along a mesh axis, and leaves the others to the compiler."""
    mesh = mesh_of(x)
    part = mesh and axes_that_divide(x.shape[-1], axis, mesh)
    if not part:
        return x
    others = [P.UNCONSTRAINED] * (x.ndim - 1)
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*others, part)))


def mesh_of(x: jax.Array) -> Any:
    """Returns the abstract mesh of an array or a traced value.

    Returns None if the mesh has one device or axes other than `AXES`.
    """
    mesh = jax.typeof(x).sharding.mesh
    return mesh if mesh.axis_names == AXES and mesh.size > 1 else None


def map_parts(function: Callable, *arrays: jax.Array) -> Any:
    """Applies a function of a batch to the part of the batch on each device, inside jit.

    If the function loops over positions, each iteration then runs on all devices at once.

    Args:
        function: a function of arrays with a leading batch axis.
        arrays: its arguments for the whole batch.
    """
    return map_and_add_parts(lambda *parts: (function(*parts), ()), *arrays)[0]


def map_and_add_parts(function: Callable, *arrays: jax.Array) -> Any:
    """Does the same as `map_parts` for a function that also returns a sum over its part of a batch.

    Args:
        function: returns results with a leading batch axis, and a tree of sums.
        arrays: its arguments for the whole batch.

    Returns:
        The results, and the sums over all parts.
    """
    mesh, size = mesh_of(arrays[0]), arrays[0].shape[0]
    if mesh is None or axes_that_divide(size, BATCH_AXES, mesh) is None:
        return function(*arrays)
    parts = math.prod(mesh.shape[axis] for axis in BATCH_AXES)
    split = [shard_activation(x.reshape(parts, size // parts, *x.shape[1:])) for x in arrays]
    results, sums = jax.vmap(function, spmd_axis_name=BATCH_AXES)(*split)
    results = jax.tree.map(lambda x: x.reshape(size, *x.shape[2:]), results)
    return results, jax.tree.map(lambda x: x.sum(0), sums)


def map_examples(function: Callable, examples: Any, batch_size: int, mesh: Mesh | None) -> Any:
    """Maps a function over examples inside jit, at most about `batch_size` at once.

    The examples of a chunk are split over the batch axes of the mesh.

    Args:
        function: a function of one example, which calls `shard_activation` on its activations.
        examples: a tree whose leading axis counts examples.
        batch_size: examples that all devices together compute at once.
        mesh: the device mesh; None: one device.
    """
    parts = math.prod(mesh.shape[axis] for axis in BATCH_AXES) if mesh else 1
    if mesh is None or parts == 1:
        return jax.lax.map(function, examples, batch_size=batch_size)
    total = jax.tree.leaves(examples)[0].shape[0]
    n_chunks = -(-total // batch_size)
    chunk_size = -(-total // (n_chunks * parts)) * parts  # a multiple of `parts`
    chunk_sharding = NamedSharding(mesh, P(None, BATCH_AXES))

    def in_chunks(x):
        padding = [(0, n_chunks * chunk_size - total)] + [(0, 0)] * (x.ndim - 1)
        x = jnp.pad(x, padding, mode="edge")
        return jax.lax.with_sharding_constraint(
            x.reshape(n_chunks, chunk_size, *x.shape[1:]), chunk_sharding
        )

    mapped = jax.vmap(function, spmd_axis_name=BATCH_AXES)
    results = jax.lax.map(mapped, jax.tree.map(in_chunks, examples))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:total], results)
