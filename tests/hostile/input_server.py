"""Runs commands with given arguments, each in a forked child of this process.

    python -m tests.hostile.input_server COMMAND...

Reads a line of JSON, [command, arguments, output file, bytes], and answers with the exit code. The
commands are imported once, and no device is used before a fork, so that a thousand inputs take
minutes. The limit of a child counts its CPU time, so that a busy machine does not change results.
"""

import importlib
import json
import os
import resource
import sys
import time
import warnings

MAX_CPU_SECONDS = 60
MAX_WALL_SECONDS = 600.0  # a child that sleeps uses no CPU time


def main(commands: list[str]) -> None:
    from experiments.schedule import launch

    # The commands that start runs are tested, not the runs.
    no_run = (sys.executable, "-c", "raise SystemExit('error: no run is started by this test')")
    launch.PROGRAM = no_run
    for command in commands:
        importlib.import_module(command)
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        print(exit_code(*json.loads(line)), file=answers, flush=True)


def exit_code(command: str, arguments: list[str], file: str, max_bytes: int = 0) -> int:
    """Runs a command in a child whose output goes to a file.

    Args:
        command: the module of the command.
        arguments: of the command.
        file: the file of its output.
        max_bytes: the largest file that it may write, as on a disk that is nearly full; 0: any.

    Returns:
        The exit code, -9 if the time was up.
    """
    pid = os.fork()
    if not pid:
        code = 70
        try:
            prepare_child(file, max_bytes)
            code = importlib.import_module(command).main(arguments)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    until = time.monotonic() + MAX_WALL_SECONDS
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return -9


def prepare_child(file: str, max_bytes: int) -> None:
    """Redirects the output of this process to a file and limits its resources."""
    out = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, errors="backslashreplace")  # noqa: SIM115
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_SECONDS, MAX_CPU_SECONDS))
    if max_bytes:
        sys.dont_write_bytecode = True  # Python would leave a cut .pyc in the environment
        resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, max_bytes))
    warnings.simplefilter("default")  # as in a command, not as in a test


if __name__ == "__main__":
    main(sys.argv[1:])
