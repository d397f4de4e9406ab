"""A heartbeat between the processes of a job, so that all end soon after one dies, hangs or fails.

Process 0 listens, every other process connects to it, and both ends send a byte each second. A
process reacts to four events of another:

    connection closed          the process was killed: they end at once
    silence of HANG_SECONDS    the process hangs or was stopped: they end
    FAILING                    the process met an error and prints it: they end after GRACE_SECONDS,
                               so that each can first report the same error itself
    DONE                       the process has finished: they continue

The heartbeat runs in a thread that uses neither a device nor the state of the program.
"""

import contextlib
import os
import secrets
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable

HANG_SECONDS = 20.0
GRACE_SECONDS = 5.0
HEARTBEAT_SECONDS = 1.0
CONNECT_SECONDS = 60
ALIVE, FAILING, DONE = b".", b"!", b"#"  # messages
PEER_FAILED_CODE = 3  # exit code of a process that ends because another one ended


class Watchdog:
    """The heartbeat thread of this process.

    Args:
        peers: {index of a process: its connected socket}.

    Attributes:
        failing: {index: time} of the peers that reported an error.
        closed: the peers whose connection has ended.
        exit_lock: held by the one thread that reports why this process ends.
    """

    def __init__(self, peers: dict[int, socket.socket]):
        self.peers = peers
        self.last_message = dict.fromkeys(peers, time.monotonic())
        self.failing: dict[int, float] = {}
        self.done: set[int] = set()
        self.closed: set[int] = set()
        self.exit_lock = threading.Lock()
        for peer in peers.values():
            peer.setblocking(False)
        threading.Thread(target=self._run, daemon=True).start()

    def send(self, message: bytes) -> None:
        """Sends a message to all peers; unreachable ones are detected by the heartbeat."""
        for peer in self.peers.values():
            with contextlib.suppress(OSError):
                peer.send(message)

    def wait_for_peers(self, seconds: float) -> None:
        """Waits until the connections to all peers have ended, at most `seconds`."""
        deadline = time.monotonic() + seconds
        while len(self.closed) < len(self.peers) and time.monotonic() < deadline:
            time.sleep(0.1)

    def _run(self) -> None:
        selector = selectors.DefaultSelector()
        for index, peer in self.peers.items():
            selector.register(peer, selectors.EVENT_READ, index)
        last_round = time.monotonic()
        while len(self.closed) < len(self.peers):
            for key, _ in selector.select(HEARTBEAT_SECONDS):
                self._receive(key.data, selector)
            now = time.monotonic()
            if now - last_round > HANG_SECONDS / 2:  # this process itself was stopped
                self.last_message = dict.fromkeys(self.peers, now)
            last_round = now
            self.send(ALIVE)
            self._check_times(now)

    def _receive(self, index: int, selector: selectors.BaseSelector) -> None:
        messages = _read(self.peers[index])
        self.last_message[index] = time.monotonic()
        if DONE in messages:
            self.done.add(index)
        if FAILING in messages:
            self.failing.setdefault(index, time.monotonic())
        if not messages:
            selector.unregister(self.peers[index])
            self.closed.add(index)
            if index not in self.done and index not in self.failing:
                self._exit(f"process {index} is gone")

    def _check_times(self, now: float) -> None:
        for index in self.peers.keys() - self.closed:
            if now - self.last_message[index] > HANG_SECONDS:
                self._exit(f"process {index} has not answered for {HANG_SECONDS:g} s")
        for index, since in self.failing.items():
            if now - since > GRACE_SECONDS:
                self._exit(f"process {index} met an error")

    def _exit(self, reason: str) -> None:
        if self.exit_lock.acquire(blocking=False):
            exit_now(peer_error_message(reason), PEER_FAILED_CODE)


def peer_error_message(reason: str) -> str:
    """Returns the error line of a process that stops because a peer stopped."""
    return (
        f"error: another process of this job stopped ({reason}). Run the same command again: it "
        "resumes from the last checkpoint."
    )


def print_line(line: str) -> None:
    """Writes a line to stderr without buffers or locks of Python."""
    with contextlib.suppress(OSError):
        os.write(2, f"{line}\n".encode())


def exit_now(message: str, code: int) -> None:
    """Ends this process without Python's shutdown, which would wait for dead peers."""
    if message:
        print_line(message)
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    os._exit(code)


def connect(index: int, count: int, host: str, share: Callable[[str], str]) -> Watchdog:
    """Connects the processes of a job and starts the watchdog of this one.

    Args:
        index: the number of this process.
        count: the number of processes.
        host: the name under which the others reach this host; used in process 0.
        share: a function that all processes call; it returns the argument of process 0 in each.
    """
    if index:
        host, port, token = share("").split()
        peer = socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS)
        peer.sendall(f"{token} {index:6d}".encode())
        return Watchdog({0: peer})
    token, peers = secrets.token_hex(16), {}
    with socket.create_server(("", 0)) as server:
        server.settimeout(CONNECT_SECONDS)
        share(f"{host} {server.getsockname()[1]} {token}")
        while len(peers) < count - 1:
            peer, _ = server.accept()
            peer.settimeout(CONNECT_SECONDS)
            # The token, a space and the process number in six characters.
            greeting = peer.recv(len(token) + 7, socket.MSG_WAITALL).decode(errors="replace")
            if greeting[: len(token)] == token:
                peers[int(greeting[len(token) :])] = peer
            else:
                peer.close()
    return Watchdog(peers)


def _read(peer: socket.socket) -> bytes:
    """Returns the received messages; empty if the peer has closed the connection."""
    try:
        return peer.recv(1024)
    except BlockingIOError:  # nothing arrived, the connection is open
        return ALIVE
    except OSError:
        return b""
