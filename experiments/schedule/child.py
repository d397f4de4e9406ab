"""A program that does not outlive the one that started it: `python child.py LAUNCHER CORES ..`.

On Linux the program is told to stop (SIGTERM: save and end) when its launcher dies of anything,
SIGKILL too. Elsewhere it runs on to its end. It keeps to its cores, where it is given some.
"""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterable, Sequence

PR_SET_PDEATHSIG = 1


def together(words: Sequence[str], cores: Iterable[int] = ()) -> list[str]:
    """The command line of a program that ends with this process."""
    return [sys.executable, __file__, str(os.getpid()), ",".join(map(str, cores)), *words]


def main(launcher: str, cores: str, *words: str) -> None:
    with contextlib.suppress(OSError, AttributeError):  # another system
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if "SUBMITIT_EXECUTOR" in os.environ:  # its notice must not kill what does not listen yet
        name = os.environ.get("SUBMITIT_PREEMPT_SIGNAL", "USR2")
        if number := getattr(signal, f"SIG{name}", None):
            signal.signal(number, signal.SIG_IGN)
    if cores:
        with contextlib.suppress(OSError, AttributeError):  # it may have lost some meanwhile
            os.sched_setaffinity(0, map(int, cores.split(",")))
    if os.getppid() == int(launcher):  # else it died before we could ask
        os.execv(words[0], words)


if __name__ == "__main__":
    main(*sys.argv[1:])
