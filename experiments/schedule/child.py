"""A wrapper that ties a program to its launcher: `python child.py LAUNCHER_PID CORES PROGRAM ..`.

On Linux the program receives SIGTERM (save and stop) when its launcher dies, even by SIGKILL. On
other systems it runs to its end. The wrapper also restricts the program to CPU cores, if given.
"""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterable, Sequence

PR_SET_PDEATHSIG = 1


def tied_command(command: Sequence[str], cores: Iterable[int] = ()) -> list[str]:
    """Returns the command line that runs `command` until it ends or this process dies."""
    return [sys.executable, __file__, str(os.getpid()), ",".join(map(str, cores)), *command]


def main(launcher_pid: str, cores: str, *command: str) -> None:
    with contextlib.suppress(OSError, AttributeError):  # not Linux
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if "SUBMITIT_EXECUTOR" in os.environ:
        # submitit's signal would kill the program before it has installed a handler.
        name = os.environ.get("SUBMITIT_PREEMPT_SIGNAL", "USR2")
        if number := getattr(signal, f"SIG{name}", None):
            signal.signal(number, signal.SIG_IGN)
    if cores:
        with contextlib.suppress(OSError, AttributeError):  # the cores may be unavailable by now
            os.sched_setaffinity(0, map(int, cores.split(",")))
    if os.getppid() == int(launcher_pid):  # otherwise the launcher died before `prctl`
        os.execv(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
