"""A laboratory for one question: what does each part of a transformer do?

    run = jaxformer.train(task, model, partition, steps=400)      train, with parts frozen
    print(jaxformer.anatomy(task))                                which parts must be trained?
    print(jaxformer.examine(run))                                 what does each part do in it?
    jaxformer.plan(task, model, target="v5e:4x4")                 cost of a step on another machine
    jaxformer.litmus(task).sentence                               does the task need attention?
    run = jaxformer.open("runs/my_run")                           read a run: result, curves, ..
    print(jaxformer.compare(run, other))                          differences with intervals
    model, params, config = jaxformer.load("runs/my_run")         load a trained network
    text = jaxformer.text(model)                                  its tokenizer
    jaxformer.capture.capture(model, params, "a prompt", names=[..])  read activations
    jaxformer.generate(model, params, tokens, new=40)             continue prompts
    jaxformer.known.compile(program)                              a network whose circuit is known
    jaxformer.adapters.merge(params)                              write adapters into their kernels

The package's modules are imported on first use, so that `import jaxformer` is quick.
"""

import importlib
import sys
import warnings
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if sys.platform == "win32":
    raise ImportError("jaxformer runs on Linux and macOS. On Windows, use WSL.")

import resource  # absent on Windows

_address_space = resource.getrlimit(resource.RLIMIT_AS)[0]
if 0 <= _address_space < 2e9:
    warnings.warn(
        f"ulimit -v allows {_address_space / 1e9:.1f} GB of address space. JAX needs about 2 GB: "
        "with less it may abort without a message.",
        stacklevel=2,
    )

if TYPE_CHECKING:
    from jaxformer import capture, surgery
    from jaxformer.api import plan, train
    from jaxformer.core import adapters
    from jaxformer.core.partition import Partition
    from jaxformer.interp import known, lens, plots
    from jaxformer.interp.generation import generate
    from jaxformer.loading import load
    from jaxformer.loading import open_run as open
    from jaxformer.models.texts import text
    from jaxformer.models.wrap import wrap
    from jaxformer.studies.anatomy.api import anatomy
    from jaxformer.studies.anatomy.examination import examine
    from jaxformer.studies.compare import compare
    from jaxformer.studies.litmus.train import litmus
    from jaxformer.training.run_view import Run

__all__ = [
    "Partition",
    "Run",
    "__version__",
    "adapters",
    "anatomy",
    "capture",
    "compare",
    "examine",
    "generate",
    "known",
    "lens",
    "litmus",
    "load",
    "open",
    "plan",
    "plots",
    "surgery",
    "text",
    "train",
    "wrap",
]

# Name -> the module and the name in it.
_OBJECTS = {
    "Partition": ("jaxformer.core.partition", "Partition"),
    "Run": ("jaxformer.training.run_view", "Run"),
    "anatomy": ("jaxformer.studies.anatomy.api", "anatomy"),
    "compare": ("jaxformer.studies.compare", "compare"),
    "examine": ("jaxformer.studies.anatomy.examination", "examine"),
    "generate": ("jaxformer.interp.generation", "generate"),
    "litmus": ("jaxformer.studies.litmus.train", "litmus"),
    "load": ("jaxformer.loading", "load"),
    "open": ("jaxformer.loading", "open_run"),
    "plan": ("jaxformer.api", "plan"),
    "text": ("jaxformer.models.texts", "text"),
    "train": ("jaxformer.api", "train"),
    "wrap": ("jaxformer.models.wrap", "wrap"),
}
_SUBMODULES = {
    "adapters": "jaxformer.core.adapters",
    "capture": "jaxformer.capture",
    "known": "jaxformer.interp.known",
    "lens": "jaxformer.interp.lens",
    "plots": "jaxformer.interp.plots",
    "surgery": "jaxformer.surgery",
}


def __getattr__(name: str) -> Any:
    if name in _OBJECTS:
        module, attribute = _OBJECTS[name]
        return getattr(importlib.import_module(module), attribute)
    if name in _SUBMODULES:
        return importlib.import_module(_SUBMODULES[name])
    # With `name` and `obj` Python adds "Did you mean ..?" to the traceback.
    message = f"module 'jaxformer' has no attribute {name!r}"
    raise AttributeError(message, name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return __all__
