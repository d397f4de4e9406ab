"""Fixtures of the tests of data."""

import socket
import time

import pytest


@pytest.fixture
def no_network(monkeypatch):
    """Nothing answers; the list grows by each host that is looked up, and by each wait."""
    seen = []

    def lost(host, *_, **__):
        seen.append(host)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", lost)
    monkeypatch.setattr(time, "sleep", seen.append)
    return seen
