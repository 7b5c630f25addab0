"""A server answers a few at a time, hangs up on more, and goes on."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from tonnage.bounded_server import BoundedServer


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.sendall(b"hello")
        self.request.recv(1)


class Few(BoundedServer):
    most_connections = 2


@pytest.fixture
def server() -> Iterator[Few]:
    with Few("127.0.0.1", 0, Echo) as found:
        threading.Thread(target=found.serve_forever, args=(0.01,), daemon=True).start()
        yield found
        found.shutdown()


def connect(server: Few) -> socket.socket:
    return socket.create_connection(server.server_address, timeout=10)  # type: ignore[arg-type]  # an IPv4 address


def test_more_than_there_are_places_for_are_closed_at_once(server: Few) -> None:
    with connect(server) as first, connect(server) as second, connect(server) as third:
        assert (first.recv(5), second.recv(5)) == (b"hello", b"hello")
        assert third.recv(5) == b""


def test_places_are_given_back(server: Few) -> None:
    assert all(is_greeted(server) for _ in range(3 * Few.most_connections))


def is_greeted(server: Few) -> bool:
    """A place is free again a moment after its connection is closed: who comes too early tries again."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with connect(server) as connection:
            if connection.recv(5):
                return True
    return False
