"""The processes of a job watch each other: if one dies, hangs or fails, all end with a line each.

Process 0 listens, every other process holds a connection to it, and both ends send a byte a second.

    the connection ends        the process was killed: the others end at once, in the seconds by
                               which the job's service outlives process 0 (coordinator.py)
    no byte for HANG seconds   it hangs or was stopped: the others end
    FAILING                    it met an error that it will say: the others end after GRACE
                               seconds, in which they may meet, and say, the same one
    DONE                       it has finished

A thread does this, which needs nothing of the device or of the program that it runs.
"""

import contextlib
import os
import secrets
import selectors
import socket
import sys
import threading
import time
from typing import Any

HANG = 20.0  # seconds without a word until a process counts as hung
GRACE = 5.0
BEAT = 1.0
ALIVE, FAILING, DONE = b".", b"!", b"#"
LOST = 3  # the exit code of a process that ends because of another one


class Watch:
    """The connections of this process to the others of its job, {index: socket}."""

    def __init__(self, peers: dict[int, socket.socket]):
        self.peers = peers
        self.heard = dict.fromkeys(peers, time.monotonic())
        self.failing: dict[int, float] = {}  # since when
        self.gone: set[int] = set()  # those that failed or finished, and closed
        self.mine = threading.Lock()  # who holds it says why the process ends
        for peer in peers.values():
            peer.setblocking(False)
        threading.Thread(target=self._run, daemon=True).start()

    def say(self, word: bytes) -> None:
        """To all; one that cannot be reached is noticed elsewhere."""
        for peer in self.peers.values():
            with contextlib.suppress(OSError):
                peer.send(word)

    def _run(self) -> None:
        selector = selectors.DefaultSelector()
        for index, peer in self.peers.items():
            selector.register(peer, selectors.EVENT_READ, index)
        done: set[int] = set()
        before = time.monotonic()
        while len(self.gone) < len(self.peers):
            for key, _ in selector.select(BEAT):
                index, words = key.data, _received(self.peers[key.data])
                self.heard[index] = time.monotonic()
                if DONE in words:
                    done.add(index)
                if FAILING in words:
                    self.failing.setdefault(index, time.monotonic())
                if not words:
                    selector.unregister(self.peers[index])
                    self.gone.add(index)
                    if index not in done and index not in self.failing:
                        self._end(f"process {index} is gone")
            now = time.monotonic()
            if now - before > HANG / 2:  # it was this process that was stopped
                self.heard = dict.fromkeys(self.peers, now)
            before = now
            self.say(ALIVE)
            for index in self.peers.keys() - self.gone:
                if now - self.heard[index] > HANG:
                    self._end(f"process {index} has not answered for {HANG:g} s")
            for index, since in self.failing.items():
                if now - since > GRACE:
                    self._end(f"process {index} met an error")

    def _end(self, why: str) -> None:
        if self.mine.acquire(blocking=False):
            leave(line(why), LOST)


def line(why: str) -> str:
    """What a process says that ends because of another one."""
    return (
        f"error: another process of this job stopped ({why}); the same command goes on from the "
        "last checkpoint."
    )


def leave(line: str, code: int) -> None:
    """Ends this process now: the usual exit would wait for one that is gone."""
    with contextlib.suppress(OSError):
        os.write(2, f"{line}\n".encode() if line else b"")
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    os._exit(code)


def connect(index: int, count: int, host: str, client: Any) -> Watch:
    """The watch of this process; `client` is the key-value store of the job's service."""
    if index:
        port, token = client.blocking_key_value_get("jaxformer/watch", 60_000).split()
        peer = socket.create_connection((host, int(port)), timeout=60)
        peer.sendall(f"{token} {index:6d}".encode())
        return Watch({0: peer})
    token, peers = secrets.token_hex(16), {}
    with socket.create_server(("", 0)) as server:
        server.settimeout(60)
        client.key_value_set("jaxformer/watch", f"{server.getsockname()[1]} {token}")
        while len(peers) < count - 1:
            peer, _ = server.accept()
            peer.settimeout(60)
            said = peer.recv(len(token) + 7, socket.MSG_WAITALL).decode(errors="replace")
            if said[: len(token)] == token:
                peers[int(said[len(token) :])] = peer
            else:
                peer.close()
    return Watch(peers)


def _received(peer: socket.socket) -> bytes:
    """What came; b"" when the other end is closed."""
    try:
        return peer.recv(1024)
    except BlockingIOError:
        return ALIVE
    except OSError:
        return b""
