"""Tasks: pure functions that draw examples from a key, with losses, scores and chance levels.

    Arrays(inputs, targets)        your own examples
    from_dataset(dataset)          rows of `datasets`, TFDS, PyTorch, or any sized collection
    Task, Batch                    the base class of a task of your own, and its examples

Read `task` first, which has the base class, then `retrieval` as an example.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxformer.tasks.arrays import Arrays
    from jaxformer.tasks.datasets import from_dataset
    from jaxformer.tasks.task import Batch, Task

__all__ = ["Arrays", "Batch", "Task", "from_dataset"]
# Imported on first use: most tasks need none of them.
_MODULES = {"Arrays": "arrays", "Batch": "task", "Task": "task", "from_dataset": "datasets"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message, name=name, obj=sys.modules[__name__])
