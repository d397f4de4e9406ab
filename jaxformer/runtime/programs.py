"""Import path of the command `jaxformer`: its programs are in `experiments` and `configs`.

Only `jaxformer/__main__.py` uses it, in a process of its own. The library imports none of them.

In a clone they are next to the package. A wheel has them in the package's folder `lab`.
"""

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

PACKAGE = Path(__file__).parents[1]


def import_program(name: str) -> ModuleType:
    """Imports a module of the programs, such as "experiments.litmus".

    Their folder comes first on the path, so that a folder `experiments` of the user does not hide
    them. Child processes inherit the path.
    """
    lab = PACKAGE / "lab"
    folder = str(lab if lab.is_dir() else PACKAGE.parent)
    if folder not in sys.path[:1]:
        sys.path.insert(0, folder)
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if folder not in inherited:
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, inherited)])
    return importlib.import_module(name)
