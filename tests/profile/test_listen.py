"""Profiles of a running job over HTTP."""

import gzip
import http.client
import json
import re
import subprocess
import time
from collections.abc import Iterator

import pytest
from profiled_programs import MAIN, TRAINING, write

from tonnage.errors import UsageError
from tonnage.profile.listen import parse_address, parse_order

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A job that runs until its test is over."""
    folder = tmp_path_factory.mktemp("listen")
    write(folder, TRAINING.replace("for (batch,) in data:", "import itertools\nfor (batch,) in itertools.cycle(data):"))
    process = subprocess.Popen(
        [*MAIN, "train.py", "--listen", "127.0.0.1:0"], cwd=folder, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    found = re.search(r"http://127.0.0.1:(\d+)/profile", process.stderr.readline())
    assert found
    yield int(found[1])
    process.terminate()
    process.communicate(timeout=30)


def ask(
    port: int, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    content = answer.status, answer.read()
    connection.close()
    return content


def state(port: int) -> str:
    return str(json.loads(ask(port, "GET", "/profile")[1])["state"])


def test_a_profile_is_started_watched_and_fetched_while_the_program_runs(port: int) -> None:
    assert ask(port, "GET", "/healthz")[0] == 200
    assert ask(port, "GET", "/profile/indicators")[0] == 404
    status, _ = ask(port, "POST", "/profile", b'{"warmup": 2, "steps": 3}', JSON)
    assert status == 202
    end = time.monotonic() + 60
    while state(port) != "ready" and time.monotonic() < end:
        time.sleep(0.1)
    found = json.loads(ask(port, "GET", "/profile/indicators")[1])
    assert (found["steps"], found["basis"]) == (3, "measured")
    assert ask(port, "GET", "/profile/flamegraph.svg")[1].startswith(b"<svg")
    assert json.loads(ask(port, "GET", "/profile/speedscope.json")[1])["profiles"]
    assert json.loads(gzip.decompress(ask(port, "GET", "/profile/trace.json.gz")[1]))["traceEvents"]
    assert json.loads(ask(port, "GET", "/profile/report")[1])["traced_steps"]
    before = json.loads(ask(port, "GET", "/healthz")[1])["steps_seen"]
    time.sleep(1.2)
    assert json.loads(ask(port, "GET", "/healthz")[1])["steps_seen"] > before


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("GET", "/nothing", None, {}, 404),
        ("POST", "/profile/indicators", b"{}", JSON, 404),
        ("DELETE", "/profile", None, {}, 405),
        ("POST", "/profile", b"{}", {}, 400),
        ("POST", "/profile", b"{", JSON, 400),
        ("POST", "/profile", b"[]", JSON, 400),
        ("POST", "/profile", b'{"steps": 0}', JSON, 400),
        ("POST", "/profile", b'{"steps": "3"}', JSON, 400),
        ("POST", "/profile", b"x" * 5000, JSON, 413),
    ],
)
def test_other_requests_are_refused(
    port: int, method: str, path: str, body: bytes | None, headers: dict[str, str], status: int
) -> None:
    found, answer = ask(port, method, path, body, headers)
    assert (found, "error" in json.loads(answer)) == (status, True)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("8080", ("127.0.0.1", 8080)),
        (":1", ("127.0.0.1", 1)),
        ("[::1]:7", ("::1", 7)),
    ],
)
def test_addresses_are_loopback_unless_named(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


def test_an_order_may_say_nothing() -> None:
    assert parse_order(b"").steps == 5
    with pytest.raises(UsageError):
        parse_order(b'{"command": "rm"}')
