"""Tasks: pure functions that draw examples from a key, with losses, scores and chance levels.

    Arrays(inputs, targets)        your own examples
    from_dataset(dataset)          rows of `datasets`, TFDS, PyTorch, or any sized collection
    Task, Batch                    the base class of a task of your own, and its examples

Read `task` first, which has the base class, then `retrieval` as an example.
"""

from typing import TYPE_CHECKING

from jaxformer.core import lazy

if TYPE_CHECKING:
    from jaxformer.tasks.arrays import Arrays
    from jaxformer.tasks.datasets import from_dataset
    from jaxformer.tasks.task import Batch, Task

__all__ = ["Arrays", "Batch", "Task", "from_dataset"]
# Imported on first use: most tasks need none of them.
__getattr__, __dir__ = lazy.names(
    __name__,
    {
        "Arrays": "jaxformer.tasks.arrays:Arrays",
        "Batch": "jaxformer.tasks.task:Batch",
        "Task": "jaxformer.tasks.task:Task",
        "from_dataset": "jaxformer.tasks.datasets:from_dataset",
    },
)
