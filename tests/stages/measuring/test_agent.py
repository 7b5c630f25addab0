"""A real agent answers who knows the token, and nobody else; nothing makes it hang or fall."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from agents import TOKEN, token_file

from tonnage.errors import Refused, Unreachable
from tonnage.stages import transfers
from tonnage.stages.agent_client import AgentClient, SeenNode
from tonnage.stages.agent_wire import GREETING, agent_address, answer, asked, proof, read_line


def client(address: str) -> AgentClient:
    return AgentClient(address, TOKEN.encode())


def reply(address: str, given: bytes) -> str:
    """What the agent says to raw bytes behind its greeting; "" when it just hangs up."""
    with socket.create_connection(agent_address(address), timeout=10) as connection:
        assert read_line(connection).startswith(GREETING)
        connection.sendall(given)
        connection.shutdown(socket.SHUT_WR)
        try:
            return connection.makefile().read()
        except ConnectionResetError:
            return ""


def question(address: str, **words: object) -> dict[str, object]:
    with asked(address, TOKEN.encode(), dict(words)) as connection:
        return answer(connection)


def test_an_agent_tells_size_load_and_speed_of_its_node(addresses: list[str]) -> None:
    node = client(addresses[0]).look(3)
    assert node.cores >= 1
    assert 0 < node.available_bytes < node.memory_bytes
    assert 0 <= node.load <= 1
    assert len(node.paces) == 3
    assert node.best_pace.score >= max(pace.score for pace in node.paces)


def test_a_transfer_has_a_bandwidth_and_round_trips(addresses: list[str]) -> None:
    found = client(addresses[0]).send(addresses[1], 0.1, 20)
    assert found.bytes_second > 10e6
    assert len(found.round_trip_seconds) == 20
    assert all(0 < seconds < 1 for seconds in found.round_trip_seconds)


def test_another_token_is_refused(addresses: list[str]) -> None:
    with pytest.raises(Refused, match="the token is another one"):
        AgentClient(addresses[0], b"another token, also long").look(1)


def test_an_answer_cannot_be_asked_for_again(addresses: list[str]) -> None:
    text = json.dumps({"ask": "look", "paces": 1})
    overheard = proof(TOKEN.encode(), "0" * 32, text)
    assert "the token is another one" in reply(addresses[0], f"{overheard} {text}\n".encode())


@pytest.mark.parametrize("given", [b"\n", b"hello\n", b"x {}\n", "é ü\n".encode()])
def test_strangers_get_no_more_than_a_refusal(addresses: list[str], given: bytes) -> None:
    assert reply(addresses[0], given) == '{"error": "the token is another one"}\n'


@pytest.mark.parametrize(
    "given", [b"", b"\xff\xfe\n", b"A" * 100_000, b"no end"], ids=["none", "binary", "long", "cut"]
)
def test_what_is_no_question_ends_the_connection(addresses: list[str], given: bytes) -> None:
    assert reply(addresses[0], given) == ""
    assert client(addresses[0]).look(1).cores >= 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({}, "there is no question 'None'"),
        ({"ask": "shutdown"}, "there is no question 'shutdown'"),
        ({"ask": "look"}, "paces must be a number from 1 to 50, not None"),
        ({"ask": "look", "paces": 10**9}, "paces must be a number from 1 to 50"),
        ({"ask": "look", "paces": True}, "paces must be a number"),
        ({"ask": "receive", "seconds": 1e9}, "seconds must be a number from 0.01 to 10"),
        ({"ask": "receive", "seconds": float("nan")}, "seconds must be a number from 0.01 to 10, not nan"),
        ({"ask": "echo", "echoes": "many"}, "echoes must be a number from 1 to 1000, not 'many'"),
        ({"ask": "send", "to": "no address", "seconds": 1, "echoes": 1}, "must be a host name or IP address"),
        ({"ask": "send", "to": "127.0.0.1:1", "seconds": 1, "echoes": 1}, "127.0.0.1:1 does not answer"),
    ],
)
def test_a_wrong_question_is_answered_with_a_sentence(
    addresses: list[str], words: dict[str, object], sentence: str
) -> None:
    with pytest.raises(Refused, match=sentence):
        question(addresses[0], **words)


def test_a_receiver_does_not_wait_for_a_sender_that_went_away(addresses: list[str]) -> None:
    with pytest.raises(Refused, match="too little came"):
        hang_up_instead_of_sending(addresses[0])


def hang_up_instead_of_sending(address: str) -> None:
    with asked(address, TOKEN.encode(), {"ask": "receive", "seconds": 1.0}) as connection:
        connection.shutdown(socket.SHUT_WR)
        answer(connection)


def test_an_agent_that_is_full_hangs_up_and_recovers(addresses: list[str]) -> None:
    idle = [socket.create_connection(agent_address(addresses[2]), timeout=10) for _ in range(32)]
    assert all(read_line(each).startswith(GREETING) for each in idle)
    with pytest.raises(Unreachable, match="does not answer"):
        client(addresses[2]).look(1)
    for each in idle:
        each.close()
    assert look_when_free(addresses[2]).cores >= 1


def look_when_free(address: str) -> SeenNode:
    """The places of closed connections are given back a moment later."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return client(address).look(1)
        except Unreachable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def test_something_else_that_listens_is_no_agent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, ThreadPoolExecutor(1) as pool:
        pool.submit(greet, other, b"SSH-2.0-OpenSSH\n")
        with pytest.raises(Unreachable, match="this is no agent"):
            client(f"127.0.0.1:{other.getsockname()[1]}").look(1)


def greet(server: socket.socket, line: bytes) -> None:
    with server.accept()[0] as connection:
        connection.sendall(line)


def test_a_silent_listener_does_not_hold_anyone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tonnage.stages.agent_wire.WAIT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(Unreachable, match="it took too long"):
        client(f"127.0.0.1:{silent.getsockname()[1]}").look(1)


def test_a_bandwidth_is_what_arrives_in_the_time() -> None:
    """1000 bytes every 50 ms."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        arrived = pool.submit(receive, server, 0.4)
        with socket.create_connection(server.getsockname()) as connection:
            for _ in range(10):
                time.sleep(0.05)
                connection.sendall(b"x" * 1000)
        assert arrived.result().bytes_second == pytest.approx(1000 / 0.05, rel=0.3)


def receive(server: socket.socket, seconds: float) -> transfers.Arrived:
    with server.accept()[0] as connection:
        return transfers.receive_for(connection, seconds)


# -- the command ----------------------------------------------------------------------------------------------------------


def agent(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tonnage", "cluster", "agent", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | environment)


def test_a_port_that_is_taken_is_a_sentence(addresses: list[str], token: Path) -> None:
    result = agent("--listen", addresses[0], "--token-file", str(token))
    assert result.returncode == 2
    assert result.stderr.startswith(f"error: cannot listen at {addresses[0]}")


def test_a_token_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = token_file(tmp_path)
    path.chmod(0o644)
    result = agent("--token-file", str(path))
    assert (result.returncode, "others may read the token" in result.stderr) == (2, True)


def test_a_token_that_is_too_short_is_refused(tmp_path: Path) -> None:
    result = agent("--token-file", str(token_file(tmp_path, "123")))
    assert (result.returncode, "is too short: 3 letters" in result.stderr) == (2, True)


def test_a_token_is_made_where_there_is_none(addresses: list[str], tmp_path: Path) -> None:
    path = tmp_path / "new" / "token"
    result = agent("--listen", addresses[0], "--token-file", str(path))  # the port is taken: it ends at once
    assert f"made a new token: {path}" in result.stderr
    assert (len(path.read_text().strip()), path.stat().st_mode & 0o077) == (64, 0)


def test_a_listen_address_without_a_port_is_refused() -> None:
    assert "is no address and port" in agent("--listen", "localhost").stderr
