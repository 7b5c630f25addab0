"""A real server in a process of its own, on ports that were free."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue

READY_SECONDS = 120.0
STOP_SECONDS = 60.0


@dataclass(slots=True)
class Served:
    """Where it answers: `http` and `grpc` are host and port, `metrics` is a URL."""

    process: subprocess.Popen[str]
    http: str = ""
    grpc: str = ""
    metrics: str = ""
    log: list[str] = field(default_factory=list)

    def stop(self) -> int:
        """SIGTERM, and the exit code that it ends with."""
        self.process.terminate()
        return self.process.wait(STOP_SECONDS)


@contextmanager
def serving(repository: Path, *options: str) -> Iterator[Served]:
    """`tonnage serve` over a repository, until it is no longer needed."""
    command = [sys.executable, "-m", "tonnage", "serve", str(repository), *options]
    for port in ("--http-port", "--grpc-port", "--metrics-port"):
        if port not in options:
            command += [port, "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    served = Served(process)
    lines: Queue[str] = Queue()
    reading = threading.Thread(target=_read, args=(served, lines), daemon=True)
    reading.start()
    try:
        _wait_until_ready(served, lines)
        yield served
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reading.join()


def _read(served: Served, lines: Queue[str]) -> None:
    assert served.process.stderr is not None
    with served.process.stderr as stream:
        for line in stream:
            served.log.append(line.rstrip())
            lines.put(line.rstrip())
    lines.put("")


def _wait_until_ready(served: Served, lines: Queue[str]) -> None:
    """It says its three addresses when all models are loaded; the last is that of the metrics."""
    while not served.metrics:
        try:
            line = lines.get(timeout=READY_SECONDS)
        except Empty:
            raise AssertionError(f"not ready after {READY_SECONDS:g} s: {served.log}") from None
        if not line:
            raise AssertionError(f"the server ended before it was ready: {served.log}")
        what, _, address = line.partition(" at ")
        if what == "REST":
            served.http = address.partition("://")[2]
        elif what == "gRPC":
            served.grpc = address
        elif what == "metrics":
            served.metrics = address
