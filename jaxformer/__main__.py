"""The command `jaxformer`, also `python -m jaxformer`."""

import sys
from collections.abc import Sequence

from jaxformer.runtime.programs import import_program


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line; returns its exit code."""
    console = import_program("experiments.cli.console")
    return console.main(sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    sys.exit(main())
