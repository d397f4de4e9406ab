"""The families of published models: `FAMILIES` has a `Family` for each model_type.

Each module of this package has a dictionary FAMILIES of its own, and what is new in a related
family is written as a change of its relative's. The modules are found, not listed, so that a new
family is one file (docs/adding.md).
"""

import importlib
import pkgutil

from jaxformer.models.pretrained.family import Family


def _found() -> dict[str, Family]:
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return {kind: family for module in modules for kind, family in module.FAMILIES.items()}


FAMILIES = _found()
