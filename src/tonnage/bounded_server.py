"""A TCP server with a thread for each connection, and no more of them than it can answer soon."""

from __future__ import annotations

import socket
import socketserver
import threading
from typing import Any


class BoundedServer(socketserver.ThreadingTCPServer):
    """Listens at `(host, port)` from the moment it is made. Connections above `most_connections` are closed at once."""

    allow_reuse_address = True
    daemon_threads = True
    most_connections = 16

    def __init__(self, host: str, port: int, handler: type[socketserver.BaseRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._places = threading.BoundedSemaphore(self.most_connections)
        super().__init__((host, port), handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """A place is free again a moment after its connection is closed."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()
