"""Agents as processes of their own, on loopback or in network namespaces."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

TOKEN = "a token that nobody guesses"


def token_file(folder: Path, token: str = TOKEN) -> Path:
    path = folder / "token"
    path.write_text(token + "\n")
    path.chmod(0o600)
    return path


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@contextmanager
def running(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A process, from its first line on stderr that says it is there, to its end."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        while not (line := process.stderr.readline()).startswith("agent at"):
            assert line, "the agent has ended"
        yield process
    finally:
        process.terminate()
        process.wait(10)
        process.stderr.close()


def agent_command(address: str, token: Path, namespace: str = "") -> list[str]:
    inside = ["ip", "netns", "exec", namespace] if namespace else []
    words = [sys.executable, "-m", "tonnage", "cluster", "agent", "--listen", address, "--token-file", str(token)]
    return [*inside, *words]


def cluster_text(addresses: Sequence[str], more: str = "") -> str:
    nodes = [
        f"  - {{name: {name}, cpu: {{cores: 1}}, memory: 1 GiB, address: '{address}', labels: {{rack: r1}}}}"
        for name, address in zip("abcdefgh", addresses, strict=False)
    ]
    return "name: rig\nnodes:\n" + "\n".join(nodes) + "\n" + more
