"""Null models: networks and labels that cannot know the answer (`jaxformer.interp.nulls`).

nulls.redraw(params, pattern, key)              matching weights drawn anew
nulls.untrained(model, key)                     never trained
nulls.frozen(task, "frozen_qk", model=model, steps=400)   trained, with parts random
nulls.shuffled_labels(labels, key)              labels that say nothing
nulls.random_mixing(model, params, tokens, key) attention that sees no token
"""

from typing import Any

from jaxformer import api
from jaxformer.core.errors import UserError
from jaxformer.core.partition import FROZEN, Partition, Rules
from jaxformer.interp.nulls import (
    blocks,
    random_mixing,
    redraw,
    shuffled_labels,
    untrained,
)
from jaxformer.models.model import Model
from jaxformer.tasks.task import Task
from jaxformer.training.run_view import Run

__all__ = ["blocks", "frozen", "random_mixing", "redraw", "shuffled_labels", "untrained"]


def frozen(
    task: Task,
    rules: Partition | Rules = "frozen_qk",
    *,
    model: Model,
    steps: int,
    **arguments: Any,
) -> Run:
    """A network that is trained with parts of it at their random initial values.

    It is the strictest null of a number about these parts: the network knows the task as well as it
    can without them.

    Args:
        task: the task of the network in question.
        rules: the name of a variant, or (pattern, label) rules that freeze something.
        model: the model of the network in question.
        steps: training steps, as many as that network has.
        **arguments: of `jaxformer.train`: batch_size, learning_rate, seeds, ..

    Example:
        null = nulls.frozen(task, "frozen_qk", model=model, steps=400)
    """
    partition = rules if isinstance(rules, Partition) else Partition(rules)
    if FROZEN not in [label for _, label in partition.rules]:
        raise UserError(
            f"the rules {partition.rules!r} freeze nothing, so the network would be no null: give "
            f"some parameters the label {FROZEN!r}, or name a variant such as 'frozen_qk'."
        )
    given: dict[str, Any] = {"progress": False, **arguments}
    return api.train(task, model, rules, steps=steps, **given)
