"""Three agents on loopback for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from agents import agent_command, free_ports, running, token_file


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return token_file(tmp_path_factory.mktemp("token"))


@pytest.fixture(scope="module")
def addresses(token: Path) -> Iterator[list[str]]:
    found = [f"127.0.0.1:{port}" for port in free_ports(3)]
    with ExitStack() as stack:
        for address in found:
            stack.enter_context(running(agent_command(address, token)))
        yield found
