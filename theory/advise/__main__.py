"""python -m theory.advise"""

import sys

from jaxformer.errors import UserError
from theory.advise import main

if __name__ == "__main__":
    # Not theory.command.run: it imports jax, which takes longer than the answer.
    try:
        main()
    except (UserError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
