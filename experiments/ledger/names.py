"""What a run will report, known before it runs: the metrics and the baselines of its task.

A task declares its names (`Task.declared`). Of a figure, or of a task that declares nothing, nobody
knows them before there is a record; the ledger then names a number that the record lacks.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from experiments.cli import flags
from jaxformer import build
from jaxformer.tasks.disk import DiskTask
from jaxformer.tasks.task import Task

RECIPES = ("train", "look")  # whose result is that of the trainer
OF_HEADS = ("pairing", "induction")  # what `look` adds: of each layer, and by chance
ALWAYS = ("trained_share",)


class Names(NamedTuple):
    """The metrics and the baselines of a run."""

    metrics: tuple[str, ...]
    baselines: tuple[str, ...]


@functools.cache
def names_of(
    config: str, overrides: tuple[tuple[str, str], ...], by_group: bool = False
) -> Names | None:
    """The names of the config "FILE:ARGUMENTS" with its overrides; None if nobody knows them.

    `by_group`: also those of the groups of examples, which take a while to find.
    """
    found: Any = flags.configured(config, dict(overrides))
    if found.recipe not in RECIPES or _is_on_disk(found.task.name):
        return None
    task = build.task(found)
    if task.declared is None:
        return None
    scores, baselines = task.declared
    seen = (*scores, *ALWAYS)
    if by_group:
        seen += tuple(f"{name}/{group}" for name in task.grouped for group in groups(task))
    unseen = tuple(f"{name}_unseen" for name in scores)
    if found.recipe == "look":
        layers = range(1, build.model(found, task).spec.layers + 1)
        seen += tuple(f"{name}/layer {layer}" for name in OF_HEADS for layer in layers)
        baselines += tuple(f"{name}_by_chance" for name in OF_HEADS)
    return Names((*seen, *unseen), baselines)


def _is_on_disk(name: str) -> bool:
    """Is it a task of files, which may not be here?"""
    return name in build.TASKS and issubclass(build.TASKS[name], DiskTask)


@functools.cache
def groups(task: Task) -> tuple[str, ...]:
    """The names of a task's groups of examples; nothing is computed."""
    one = jax.eval_shape(lambda: task.example(jax.random.key(0), jnp.int32(0)))
    batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape), x.dtype), one)
    return tuple(jax.eval_shape(task.groups, batch))
