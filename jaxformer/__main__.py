"""The command `jaxformer`, also `python -m jaxformer`.

The programs lie in the packages `experiments` and `configs`: beside this package in a clone, and
below it, in the folder `lab`, where a wheel is installed.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

PACKAGE = Path(__file__).parent


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line; returns its exit code."""
    lab = PACKAGE / "lab"
    folder = str(lab if lab.is_dir() else PACKAGE.parent)
    # The path comes first, so that a folder `experiments` of the user does not hide ours. Child
    # processes inherit it.
    sys.path.insert(0, folder)
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, inherited] if inherited else [folder])
    console = importlib.import_module("experiments.cli.console")
    return console.main(sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    sys.exit(main())
