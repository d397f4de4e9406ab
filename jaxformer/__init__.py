"""A laboratory for one question: what does each part of a transformer do?

    run = jaxformer.train(task, model, partition, steps=400)      train and freeze
    model, params, config = jaxformer.load("runs/my_run")         a trained network again
    jaxformer.capture.capture(model, params, tokens, names)       look inside

What these names need is imported when they are used, so that `import jaxformer` is quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

from jaxformer.version import __version__

if TYPE_CHECKING:
    from jaxformer import capture
    from jaxformer.loading import load
    from jaxformer.partition import Partition
    from jaxformer.training.api import Run, train

__all__ = ["Partition", "Run", "__version__", "capture", "load", "train"]

_PLACES = {
    "Partition": "jaxformer.partition",
    "Run": "jaxformer.training.api",
    "load": "jaxformer.loading",
    "train": "jaxformer.training.api",
}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    if name == "capture":
        return importlib.import_module("jaxformer.capture")
    raise AttributeError(f"module 'jaxformer' has no attribute {name!r}")
