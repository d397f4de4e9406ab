"""Fixtures of the tests of data."""

import socket
import time

import pytest


@pytest.fixture
def no_network(monkeypatch):
    """Blocks the network; returns a list that grows with each looked-up host and each wait."""
    seen = []

    def lost(host, *_, **__):
        seen.append(host)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", lost)
    monkeypatch.setattr(time, "sleep", seen.append)
    return seen
