"""Advisory locks on open files, which the system releases when their process ends."""

import fcntl
import os
from typing import Any


def try_lock(file: Any, shared: bool = False) -> bool:
    """Locks an open file until it is closed, without waiting.

    Args:
        file: an open file, or its descriptor.
        shared: whether others may hold a shared lock at the same time.

    Returns:
        False if another process holds the lock.

    Raises:
        OSError: on a file system without locks.
    """
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for_lock(file: Any) -> None:
    """Waits until no other process has the lock, and locks an open file until it is closed."""
    fcntl.flock(file, fcntl.LOCK_EX)


def refuse_links(name: str, flags: int) -> int:
    """Opens a file unless it is a symbolic link, which could lead to the file of another user.

    Pass it as the `opener` of the built-in `open`.
    """
    return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
