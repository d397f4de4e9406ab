"""The service through which the processes of a job meet, in a process of its own.

JAX runs it inside process 0, and when that is killed all others are aborted with a stack of C++,
often before they can say why. Here it outlives process 0 by LINGER seconds, in which the watch of
every process notices and ends it with one line.

    python -m jaxformer.runtime.coordinator ADDRESS PROCESSES OPTIONS      started by process 0
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

LINGER = 5.0
READY = "ready\n"


class Service:
    """Takes the place of JAX's own service object."""

    def __init__(self, address: str, processes: int, **options: Any):
        words = [sys.executable, "-m", "jaxformer.runtime.coordinator", address, str(processes)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        # A Ctrl-C at a terminal is not for it: it ends when process 0 does.
        self.child = subprocess.Popen(
            [*words, json.dumps(options)], stderr=subprocess.PIPE, start_new_session=True, **pipes
        )
        answer, errors = self.child.stdout, self.child.stderr
        assert answer and errors
        if answer.readline() != READY:
            said = errors.read().strip().splitlines() or ["it said nothing"]
            raise RuntimeError(f"no service at {address}: {said[-1]}")

    def shutdown(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self.child.communicate("end\n", timeout=LINGER)
        self.child.kill()
        self.child.wait()


@contextlib.contextmanager
def apart(room: Any) -> Iterator[None]:
    """Within, JAX starts its service apart; `room` is the module where it takes it from."""
    own = room.get_distributed_runtime_service
    room.get_distributed_runtime_service = Service
    try:
        yield
    finally:
        room.get_distributed_runtime_service = own


def main(address: str, processes: str, options: str) -> None:
    from jax._src.lib import _jax

    service = _jax.get_distributed_runtime_service(address, int(processes), **json.loads(options))
    sys.stdout.write(READY)
    sys.stdout.flush()
    if not sys.stdin.readline():  # process 0 is gone
        time.sleep(LINGER)
        os._exit(0)
    service.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
