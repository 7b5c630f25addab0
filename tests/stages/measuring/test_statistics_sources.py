"""Statistics from files, services and agents, merged; each trouble is a sentence."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from agents import cluster_text, free_ports

from tonnage.errors import InvalidFile, NotFound, TonnageError, Unreachable, UsageError
from tonnage.hardware import Cluster, read_cluster
from tonnage.split.observations import Statistics
from tonnage.stages import fetching
from tonnage.stages.statistics_sources import read_sources

LINKS = "links: [{kind: ethernet, bandwidth: 1 Gbit/s}]\n"
PROFILE = """\
node1 -- Input -- forward_compute_time=1.0, backward_compute_time=0.0, activation_size=1000.0, parameter_size=0.0
node2 -- Linear -- forward_compute_time=2.0, backward_compute_time=4.0, activation_size=1000.0, parameter_size=4000.0
\tnode1 -- node2
"""


def document(age_seconds: float = 0.0, **speeds: float) -> str:
    nodes = [{"name": name, "speed": {"median": speed, "p95": speed}} for name, speed in speeds.items()]
    return json.dumps({"version": 1, "taken_at": time.time() - age_seconds, "valid_seconds": 60, "nodes": nodes})


def speeds(statistics: Statistics) -> dict[str, float]:
    return {entry.place: entry.speed.median for entry in statistics.places if entry.speed is not None}


class Service(ThreadingHTTPServer):
    """Answers each path with a status and a body."""

    pages: dict[str, tuple[int, bytes]]
    daemon_threads = True


class Handler(BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        status, body = self.server.pages[self.path]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


Serve = Callable[[str | bytes], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Puts a body there, and tells its address."""
    with Service(("127.0.0.1", 0), Handler) as service:
        service.pages = {"/gone": (404, b"")}
        threading.Thread(target=service.serve_forever, args=(0.01,), daemon=True).start()

        def put(body: str | bytes) -> str:
            service.pages["/statistics"] = (200, body.encode() if isinstance(body, str) else body)
            return f"http://127.0.0.1:{service.server_address[1]}/statistics"

        yield put
        service.shutdown()


def test_a_service_gives_the_document_of_a_file(serve: Serve, tmp_path: Path) -> None:
    text = document(a=0.5)
    (tmp_path / "seen.json").write_text(text)
    assert read_sources([serve(text)]) == read_sources([str(tmp_path / "seen.json")])


def test_the_newest_of_several_sources_counts(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text(document(30, a=0.1, b=0.2))
    found = read_sources([serve(document(a=0.5)), str(tmp_path / "old.json")])
    assert speeds(found) == {"a": 0.5, "b": 0.2}


def test_a_service_that_is_not_there_is_named() -> None:
    (port,) = free_ports(1)
    with pytest.raises(Unreachable, match=f"http://127.0.0.1:{port}/seen does not answer: .*refused"):
        read_sources([f"http://127.0.0.1:{port}/seen"])


def test_a_service_that_says_no_is_quoted(serve: Serve) -> None:
    with pytest.raises(Unreachable, match="/gone answers 404"):
        read_sources([serve("").replace("statistics", "gone")])


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "the file is empty"),
        (b"<html>", "must be a mapping"),
        (b'{"version": 2}', "version"),
        (b'{"version": 1, "nodes": [{"name": "a", "load": 7}]}', "nodes.0..load"),
        (b"\xff\xfe", "not UTF-8"),
        (b" " * (fetching.MOST_BYTES + 1), "too many"),
    ],
    ids=["empty", "page", "version", "field", "binary", "large"],
)
def test_what_is_no_document_is_refused_with_its_address(serve: Serve, body: bytes, sentence: str) -> None:
    url = serve(body)
    with pytest.raises(InvalidFile, match=sentence) as caught:
        read_sources([url])
    assert url in caught.value.message


def test_a_service_that_never_ends_is_left(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "WHOLE_SECONDS", -1.0)
    with pytest.raises(Unreachable, match="is not done after"):
        read_sources([serve(document(a=1.0))])


@pytest.mark.parametrize(
    ("source", "kind", "sentence"),
    [
        ("absent.json", NotFound, "no such file"),
        ("http://", Unreachable, "does not answer"),
        ("http://[::1", Unreachable, "does not answer"),
        ("http://me:secret@host/x", UsageError, "a user's name"),
        ("agents", UsageError, "whose agents"),
    ],
)
def test_sources_that_are_none_get_one_sentence(source: str, kind: type[TonnageError], sentence: str) -> None:
    with pytest.raises(kind, match=sentence) as caught:
        read_sources([source])
    assert "secret" not in caught.value.message


# -- agents ---------------------------------------------------------------------------------------------------------------


def cluster_at(folder: Path, addresses: list[str]) -> Path:
    path = folder / "cluster.yaml"
    path.write_text(cluster_text(addresses, LINKS))
    return path


def described(folder: Path, addresses: list[str]) -> Cluster:
    return read_cluster(cluster_at(folder, addresses))


def test_agents_tell_of_nodes_and_links_now(addresses: list[str], token: Path, tmp_path: Path) -> None:
    found = read_sources(["agents"], described(tmp_path, addresses[:2]), token_file=token)
    assert set(speeds(found)) == {"a", "b"}
    assert {(each.source, each.target) for each in found.links} == {("a", "b"), ("b", "a")}
    assert all(time.time() - each.taken_at < 60 for each in found.places)


def test_a_node_whose_agent_does_not_answer_is_lost(addresses: list[str], token: Path, tmp_path: Path) -> None:
    notes: list[str] = []
    cluster = described(tmp_path, [addresses[0], f"127.0.0.1:{free_ports(1)[0]}"])
    found = read_sources(["agents"], cluster, token_file=token, note=notes.append)
    assert [each.place for each in found.places if each.is_lost] == ["b"]
    assert any(note.startswith("b: the agent at 127.0.0.1") for note in notes)


def test_no_agent_at_all_is_an_error(token: Path, tmp_path: Path) -> None:
    cluster = described(tmp_path, [f"127.0.0.1:{port}" for port in free_ports(2)])
    with pytest.raises(Unreachable, match="no agent answers"):
        read_sources(["agents"], cluster, token_file=token)


# -- the command ----------------------------------------------------------------------------------------------------------


def split(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    (folder / "profile.txt").write_text(PROFILE)
    command = [sys.executable, "-m", "tonnage", "split", folder / "profile.txt", *words]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=False)


def test_a_split_goes_by_agents_and_files(addresses: list[str], token: Path, tmp_path: Path) -> None:
    """The agent of c does not answer, and a file has seen a and b since: b is the one that works."""
    cluster = cluster_at(tmp_path, [*addresses[:2], f"127.0.0.1:{free_ports(1)[0]}"])
    (tmp_path / "seen.json").write_text(document(-30, a=0.001, b=1.0))
    result = split(
        tmp_path, "--cluster", cluster, "--statistics", "agents", "--token-file", token,
        "--statistics", tmp_path / "seen.json", "--json",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert set(json.loads(result.stdout)["assignment"].values()) == {"b"}
    assert "note: c: the agent at 127.0.0.1" in result.stderr


def test_old_statistics_of_a_service_are_refused_by_name(serve: Serve, addresses: list[str], tmp_path: Path) -> None:
    url = serve(document(3600, a=0.5))
    result = split(tmp_path, "--cluster", cluster_at(tmp_path, addresses), "--statistics", url)
    assert result.returncode == 2
    assert "the statistics of a are 36" in result.stderr
    assert "take new ones" in result.stderr


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("--statistics", "agents", "--token-file", "absent"), 4, "no token: absent"),
        (("--token-file", "absent"), 2, "--token-file is about agents"),
        (("--statistics", "http://127.0.0.1:9/seen"), 5, "does not answer"),
    ],
)
def test_mistakes_about_sources_get_one_sentence(
    addresses: list[str], tmp_path: Path, words: tuple[str, ...], code: int, sentence: str
) -> None:
    result = split(tmp_path, "--cluster", cluster_at(tmp_path, addresses), *words)
    assert result.returncode == code, result.stderr
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr
