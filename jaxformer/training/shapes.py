"""Shapes of a model's parameters, and the adapters that the phases of a run add to them.

Nothing here computes an array.
"""

import functools
from collections.abc import Iterable, Mapping
from typing import Any

import jax

from jaxformer.core import adapters, paths
from jaxformer.core.adapters import Lora
from jaxformer.core.errors import UserError, is_users
from jaxformer.core.partition import Partition
from jaxformer.models.own_model import is_frozen_value
from jaxformer.tasks.task import Task


def shapes_of(model: Any, task: Task) -> Any:
    """The shapes of a model's parameters without adapters.

    They are kept only where equal values compute the same. A user's module or task is traced anew,
    and given parameters are not kept alive.
    """
    is_fixed = is_frozen_value(model) and not is_users(task)
    return _kept_shapes(model, task) if is_fixed else _parameter_shapes(model, task)


@functools.lru_cache(maxsize=64)
def _kept_shapes(model: Any, task: Task) -> Any:
    return _parameter_shapes(model, task)


def _parameter_shapes(model: Any, task: Task) -> Any:
    return jax.eval_shape(lambda key: model.init(key, task.blank())["params"], jax.random.key(0))


def adapters_of(shapes: Any, partitions: Iterable[Partition]) -> dict[str, Lora]:
    """The adapters of all phases together: a phase trains parameters, but adds none.

    Args:
        shapes: the shapes of the parameters without adapters.
        partitions: the partitions of the phases.

    Raises:
        UserError: two phases give one kernel different adapters.
    """
    loras: dict[str, Lora] = {}
    for partition in partitions:
        for path, lora in partition.adapters(shapes).items():
            if loras.setdefault(path, lora) != lora:
                raise UserError(
                    f"two phases give {path} different adapters, {loras[path]} and {lora}: an "
                    "adapter keeps its rank and scale during a run."
                )
    return loras


def adapted_shapes(model: Any, task: Task, partitions: Iterable[Partition]) -> Any:
    """The shapes of a model's parameters with the adapters of these partitions."""
    shapes = shapes_of(model, task)
    return adapters.add_shapes(shapes, adapters_of(shapes, partitions))


def check_adapters_are_read(model: Any, task: Task, loras: Mapping[str, Lora], shapes: Any) -> None:
    """Raises UserError if the model would ignore an adapter, since its linear maps are its own.

    Args:
        model: the model.
        task: the task.
        loras: the adapter of each kernel.
        shapes: the shapes of the parameters without adapters.
    """
    blank = task.blank()
    shapes = adapters.add_shapes(shapes, loras)
    traced = jax.make_jaxpr(lambda params: model.apply({"params": params}, blank))(shapes).jaxpr
    inputs = dict(zip(paths.flatten(shapes), traced.invars, strict=True))
    read = {id(variable) for equation in traced.eqns for variable in equation.invars}
    for kernel in loras:
        if id(inputs[adapters.beside(kernel, adapters.LORA_B)]) not in read:
            raise UserError(
                f"{type(model).__name__} takes no adapter at {kernel}: its linear maps are "
                "not jaxformer.models.layers.Dense. Train the kernel itself."
            )
