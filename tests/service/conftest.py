"""A configuration server as users start it; the helpers of tests/configure serve here as well."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import pytest

sys.path.append(str(Path(__file__).parents[1] / "configure"))
from placing import EXAMPLE, indicators
from serving import script

from tonnage.engines.ports import free_port
from tonnage.errors import Unreachable
from tonnage.service.client import Client


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TONNAGE_SERVERS", str(tmp_path / "servers.json"))
    monkeypatch.setenv("TONNAGE_SEEN_LABELS", str(tmp_path / "seen.json"))
    monkeypatch.setenv("TONNAGE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("TONNAGE_DATABASE", str(tmp_path / "benchmark.db"))
    monkeypatch.chdir(tmp_path)
    script(tmp_path)
    (tmp_path / "seen.indicators.json").write_text(json.dumps(indicators(program_digest="").as_dict()))


@pytest.fixture
def inventory(environment: None) -> Path:  # noqa: ARG001  (it says where files are)
    return EXAMPLE


@pytest.fixture
def server(inventory: Path) -> Iterator[str]:
    address = f"127.0.0.1:{free_port()}"
    words = ("configure-server", "--cluster", str(inventory), "--key", "server.key", "--listen", address)
    process = subprocess.Popen([sys.executable, "-m", "tonnage", *words], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        _wait(process.stderr, f"http://{address}")
        yield f"http://{address}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)


def _wait(lines: TextIO, url: str) -> None:
    said = [lines.readline() for _ in range(3)]
    assert "made a new key" in said[0], said
    for _ in range(200):
        with suppress(Unreachable):  # it says so just before it listens
            Client(url).server()
            return
        time.sleep(0.05)
