"""Tasks: pure functions that draw examples from a key, with losses, scores and chance levels.

    Arrays(inputs, targets)        your own examples
    from_dataset(dataset)          rows of `datasets`, TFDS, PyTorch, or any sized collection

Read `task` first, which has the base class, then `retrieval` as an example.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxformer.tasks.arrays import Arrays
    from jaxformer.tasks.datasets import from_dataset

__all__ = ["Arrays", "from_dataset"]
# Imported on first use: most tasks need neither.
_MODULES = {"Arrays": "arrays", "from_dataset": "datasets"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
