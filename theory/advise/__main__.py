"""python -m theory.advise"""

import sys

from theory.advise import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
