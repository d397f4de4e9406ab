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
    jaxformer.nulls.redraw(params, pattern, key)      a network that cannot know the answer
    jaxformer.probe(run, "block_1/states", labels)    what can be read, beside such networks

The package's modules are imported on first use, so that `import jaxformer` is quick.
"""

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxformer.core import lazy

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
    import theory as theory
    from jaxformer import capture, models, surgery, tasks
    from jaxformer.api import plan, train
    from jaxformer.core import adapters
    from jaxformer.core.partition import Partition
    from jaxformer.interp import circuits, known, lens, plots
    from jaxformer.interp.generation import generate
    from jaxformer.loading import load
    from jaxformer.loading import open_run as open
    from jaxformer.models.texts import text
    from jaxformer.models.wrap import wrap
    from jaxformer.studies import nulls
    from jaxformer.studies.anatomy.api import anatomy
    from jaxformer.studies.anatomy.examination import examine
    from jaxformer.studies.compare import compare
    from jaxformer.studies.litmus.train import litmus
    from jaxformer.studies.probing import probe
    from jaxformer.training.run_view import Run
    from theory import advise as advise

__all__ = [
    "Partition",
    "Run",
    "__version__",
    "adapters",
    "anatomy",
    "capture",
    "circuits",
    "compare",
    "examine",
    "generate",
    "known",
    "lens",
    "litmus",
    "load",
    "models",
    "nulls",
    "open",
    "plan",
    "plots",
    "probe",
    "surgery",
    "tasks",
    "text",
    "train",
    "wrap",
]

_FOLDER = Path(__file__).parents[1]
# Packages beside this one, which a package of yours of the same name hides. They are no part of
# __all__, because the library works without them.
_BESIDE = {"theory": 1, "advise": 2}  # name: how many folders it lies below that of jaxformer
# Each name and where it is.
_PLACES = {
    "Partition": "jaxformer.core.partition:Partition",
    "Run": "jaxformer.training.run_view:Run",
    "adapters": "jaxformer.core.adapters",
    "advise": "theory.advise",
    "anatomy": "jaxformer.studies.anatomy.api:anatomy",
    "capture": "jaxformer.capture",
    "circuits": "jaxformer.interp.circuits",
    "compare": "jaxformer.studies.compare:compare",
    "examine": "jaxformer.studies.anatomy.examination:examine",
    "generate": "jaxformer.interp.generation:generate",
    "known": "jaxformer.interp.known",
    "lens": "jaxformer.interp.lens",
    "litmus": "jaxformer.studies.litmus.train:litmus",
    "load": "jaxformer.loading:load",
    "models": "jaxformer.models",
    "nulls": "jaxformer.studies.nulls",
    "open": "jaxformer.loading:open_run",
    "plan": "jaxformer.api:plan",
    "plots": "jaxformer.interp.plots",
    "probe": "jaxformer.studies.probing:probe",
    "surgery": "jaxformer.surgery",
    "tasks": "jaxformer.tasks",
    "text": "jaxformer.models.texts:text",
    "theory": "theory",
    "train": "jaxformer.api:train",
    "wrap": "jaxformer.models.wrap:wrap",
}
_get, __dir__ = lazy.names(__name__, _PLACES)


def __getattr__(name: str) -> Any:
    found = _get(name)
    if depth := _BESIDE.get(name):
        folder = Path(str(found.__file__)).parents[depth]
        if folder != _FOLDER:
            raise ImportError(f"{found.__file__} hides the package {found.__name__} of jaxformer.")
    return found
