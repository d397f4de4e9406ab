"""Names of the metrics and baselines that a run will report.

A task declares its names (`Task.declared`). The names of a figure, or of a task without a
declaration, are unknown before there is a record. A rule that names a missing metric of such a run
is found only when the ledger reads the record.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from experiments.cli import flags
from jaxformer import build
from jaxformer.tasks.disk import DiskTask
from jaxformer.tasks.task import Task

RECIPES = ("train", "look")  # recipes that report the metrics of the task
# The recipe `look` adds these scores of each layer, and the accuracies after these cuts of heads.
HEAD_METRICS = ("pairing", "induction")
HEAD_CUTS = ("strongest head cut", "answering heads cut", "weakest head cut", "all heads cut")
ALWAYS = ("trained_share",)  # metrics of every run


class Names(NamedTuple):
    """Names of the metrics and the baselines of a run."""

    metrics: tuple[str, ...]
    baselines: tuple[str, ...]


@functools.cache
def names_of(
    config: str, overrides: tuple[tuple[str, str], ...], by_group: bool = False
) -> Names | None:
    """Returns the names for a config "FILE:ARGUMENTS" with overrides; None if they are unknown.

    `by_group` adds the metrics of groups of examples, which takes longer.
    """
    values: Any = flags.load_with_overrides(config, dict(overrides))
    if values.recipe not in RECIPES or _is_on_disk(values.task.name):
        return None
    task = build.task(values)
    if task.declared is None:
        return None
    scores, baselines = task.declared
    names = (*scores, *ALWAYS)
    if by_group:
        names += tuple(f"{name}/{group}" for name in task.grouped for group in groups(task))
    unseen = tuple(f"{name}_unseen" for name in scores)
    if values.recipe == "look":
        layers = range(1, build.model(values, task).spec.layers + 1)
        names += tuple(f"{name}/layer {layer}" for name in HEAD_METRICS for layer in layers)
        names += tuple(f"accuracy/{cut}" for cut in HEAD_CUTS if len(layers) > 1)
        baselines += tuple(f"{name}_by_chance" for name in HEAD_METRICS)
    return Names((*names, *unseen), baselines)


def _is_on_disk(name: str) -> bool:
    """Returns whether the task reads files, which may be missing on this machine."""
    return name in build.TASKS and issubclass(build.TASKS[name], DiskTask)


@functools.cache
def groups(task: Task) -> tuple[str, ...]:
    """Returns the names of a task's groups of examples, without computing an example."""
    example = jax.eval_shape(lambda: task.example(jax.random.key(0), jnp.int32(0)))
    batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape), x.dtype), example)
    return tuple(jax.eval_shape(task.groups, batch))
