"""A laboratory for one question: what does each part of a transformer do?

    run = jaxformer.train(task, model, partition, steps=400)      train, with parts frozen
    model, params, config = jaxformer.load("runs/my_run")         load a trained network
    jaxformer.capture.capture(model, params, tokens, names)       read activations

The package's modules are imported on first use, so that `import jaxformer` is quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from jaxformer import capture, surgery
    from jaxformer.api import Run, train
    from jaxformer.core.partition import Partition
    from jaxformer.interp import lens, plots
    from jaxformer.loading import load
    from jaxformer.models.wrap import wrap

__all__ = [
    "Partition",
    "Run",
    "__version__",
    "capture",
    "lens",
    "load",
    "plots",
    "surgery",
    "train",
    "wrap",
]

_MODULES = {
    "Partition": "jaxformer.core.partition",
    "Run": "jaxformer.api",
    "load": "jaxformer.loading",
    "train": "jaxformer.api",
    "wrap": "jaxformer.models.wrap",
}
_SUBMODULES = {
    "capture": "jaxformer.capture",
    "lens": "jaxformer.interp.lens",
    "plots": "jaxformer.interp.plots",
    "surgery": "jaxformer.surgery",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    if name in _SUBMODULES:
        return importlib.import_module(_SUBMODULES[name])
    raise AttributeError(f"module 'jaxformer' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
