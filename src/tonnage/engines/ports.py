"""Ports of this machine: whether one is free, and whether somebody answers."""

from __future__ import annotations

import socket
from collections.abc import Iterable

from tonnage.errors import UsageError

LOOPBACK = "127.0.0.1"
_ANSWER_SECONDS = 0.5


def check_ports(ports: Iterable[tuple[int, int]]) -> None:
    """Raises `UsageError` for a number that is no port, is asked for twice, or is taken."""
    seen: set[int] = set()
    for host_port, job_port in ports:
        for port in (host_port, job_port):
            if not 0 < port < 65536:
                raise UsageError(f"{port} is no port: they go from 1 to 65535")
        if host_port in seen:
            raise UsageError(f"port {host_port} is asked for twice")
        seen.add(host_port)


def check_ports_are_free(ports: Iterable[tuple[int, int]]) -> None:
    """Before anything is started; another program can still be faster, and then the engine says so."""
    for host_port, job_port in ports:
        if is_taken(host_port):
            hint = f"choose another one, such as --port {free_port()}:{job_port}"
            raise UsageError(f"port {host_port} is taken", hint)


def is_taken(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
        except PermissionError:
            return False  # below 1024 the engine may do what we may not
        except OSError:
            return True
    return False


def free_port() -> int:
    """One that nobody uses at this moment."""
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        port: int = listener.getsockname()[1]
        return port


def answers(port: int) -> bool:
    """Whether a server is behind the port: HTTP gets an answer, others at least keep the connection open."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=_ANSWER_SECONDS) as connection:
            connection.sendall(b"HEAD / HTTP/1.0\r\n\r\n")
            return bool(connection.recv(1))
    except TimeoutError:
        return True  # accepted and waiting: a proxy without a server would have closed it
    except OSError:
        return False
