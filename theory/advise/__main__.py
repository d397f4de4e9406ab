"""python -m theory.advise"""

import sys

from jaxformer.commandline import command
from theory.advise import main


@command
def run(arguments: list[str]) -> int:
    """Not theory.command.run: that imports jax, which takes longer than the answer."""
    main(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
