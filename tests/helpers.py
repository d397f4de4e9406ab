"""Helpers that many tests share."""

import fcntl
import os
from collections.abc import Callable, Iterable
from pathlib import Path


def shared_folder(tmp_path_factory, name: str, write: Callable[[Path], None]) -> Path:
    """Returns a folder that the first worker writes and all workers of a test run read.

    Args:
        tmp_path_factory: the fixture of pytest.
        name: of the folder.
        write: a function that writes the folder.
    """
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, done = base / f"shared_{name}", base / f"shared_{name}.done"
    with open(base / f"shared_{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released when the file is closed
        if not done.exists():
            folder.mkdir()
            write(folder)
            done.touch()
    return folder


def failures(check: Callable, cases: Iterable) -> list[str]:
    """Returns a line for each case that fails a check.

    Args:
        check: a function that raises an exception if its case is wrong.
        cases: the arguments of the check: a tuple, or one object that is not a tuple.
    """
    lines = []
    for case in cases:
        arguments = case if isinstance(case, tuple) else (case,)
        try:
            check(*arguments)
        except Exception as error:
            lines.append(f"{case!s:.200}: {type(error).__name__}: {error}")
    return lines
