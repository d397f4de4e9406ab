"""Takes input for commands, one line of JSON each, and has a forked child of this process take it.

    python -m tests.hostile.asked COMMAND...          [command, words, file, bytes] -> exit code

The commands are imported once, and no device is used before a fork, so that a thousand inputs take
minutes. A child has SECONDS of processor time: an endless one has no chance, a busy machine has.
"""

import importlib
import json
import os
import resource
import sys
import time
import warnings

SECONDS = 60  # of the processor
PATIENCE = 600.0  # on the clock, for one that sleeps


def main(commands: list[str]) -> None:
    from experiments.schedule import launch

    # What a command would start is not what is tested here.
    no_run = (sys.executable, "-c", "raise SystemExit('error: no run is started by this test')")
    launch.PROGRAM = no_run
    for command in commands:
        importlib.import_module(command)
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        print(ended(*json.loads(line)), file=answers, flush=True)


def ended(command: str, words: list[str], file: str, room: int = 0) -> int:
    """The exit code of a child whose words go to a file; -9 if its time was up.

    `room` is how many bytes it may write into a file, as on a disk that is nearly full.
    """
    pid = os.fork()
    if not pid:
        code = 70
        try:
            take(file, room)
            code = call(command, words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return -9


def take(file: str, room: int) -> None:
    """This child's output goes to a file, and its resources are limited."""
    out = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, errors="backslashreplace")  # noqa: SIM115
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    if room:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    warnings.simplefilter("default")  # as in a command, not as in a test


def call(command: str, words: list[str]) -> int:
    return importlib.import_module(command).main(words)


if __name__ == "__main__":
    main(sys.argv[1:])
