"""A program that does not outlive the one that started it: `python child.py LAUNCHER PROGRAM ..`.

On Linux the program is told to stop (SIGTERM: save and end) when its launcher dies of anything,
SIGKILL too. Elsewhere it runs on to its end.
"""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1


def together(words: Sequence[str]) -> list[str]:
    """The command line of a program that ends with this process."""
    return [sys.executable, __file__, str(os.getpid()), *words]


def main(launcher: str, *words: str) -> None:
    with contextlib.suppress(OSError, AttributeError):  # another system
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == int(launcher):  # else it died before we could ask
        os.execv(words[0], words)


if __name__ == "__main__":
    main(*sys.argv[1:])
