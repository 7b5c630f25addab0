"""What is told about a server that runs: by whoever can ask it over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tonnage.engines.ports import free_port
from tonnage.serve.health import READY, Health, ModelTold, ask_health

BROKEN = {"name": "a", "version": "1", "state": "UNAVAILABLE", "reason": "its file is empty"}


@contextmanager
def server(ready: int, index: int = 200, told: object = ()) -> Iterator[str]:
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(ready, b"")

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(index, json.dumps(told).encode())

        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answers) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.server_address[1]}"
        finally:
            listening.shutdown()
            thread.join()


def test_a_ready_server_tells_its_models() -> None:
    with server(200, told=[{"name": "a", "version": "2", "state": "READY"}, {"name": "b"}]) as base:
        found = ask_health(base)
    assert found == Health(True, True, (ModelTold("a", "2", "READY"), ModelTold("b", "", "")))
    assert found.failed == ()


def test_a_model_that_failed_is_told_from_one_that_was_unloaded() -> None:
    with server(503, told=[BROKEN, {"name": "b", "state": "UNAVAILABLE", "reason": "unloaded"}]) as base:
        found = ask_health(base)
    assert (found.is_live, found.is_ready) == (True, False)
    assert [model.name for model in found.failed] == ["a"]


@pytest.mark.parametrize(("index", "told"), [(401, ()), (200, "not a list of models"), (200, None)])
def test_models_that_are_not_told_are_none(index: int, told: object) -> None:
    with server(200, index, told) as base:
        assert ask_health(base) == Health(True, True, ())


def test_nobody_is_not_live() -> None:
    assert ask_health(f"http://127.0.0.1:{free_port()}") == Health()


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_as_a_program_it_says_it_by_its_exit_code(status: int, code: int) -> None:
    with server(status) as base:
        done = subprocess.run([sys.executable, "-m", "tonnage.serve.health", base + READY], check=False, timeout=60)
    assert done.returncode == code
