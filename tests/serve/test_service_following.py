"""A server follows its file: what is new there is applied, what is wrong is told, what needs a restart is named."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tonnage.serve.following import following
from tonnage.serve.reconfiguring import reconfigure
from tonnage.serve.server import Control, ServeOptions, Server
from tonnage.serve.settings import ServeSettings, SettingsSource

TOKEN = "a-token-of-sixteen-letters"


def follow_while(source: SettingsSource, *changes: Callable[[], object]) -> list[ServeOptions]:
    """Each change waits until it was noticed: an error in the log counts as well as new options."""
    told: list[ServeOptions] = []
    said: list[str] = []
    noticed = logging.Handler()
    noticed.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("tonnage.serve")

    async def reconfigure(_: object, options: ServeOptions) -> None:
        told.append(options)

    async def run() -> None:
        task = asyncio.create_task(following(source, 0.001)(None))  # type: ignore[arg-type]
        for change in changes:
            before = len(told) + len(said)
            change()
            async with asyncio.timeout(10):
                while len(told) + len(said) == before:
                    await asyncio.sleep(0.001)
        task.cancel()

    log.addHandler(noticed)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tonnage.serve.following.reconfigure", reconfigure)
            asyncio.run(run())
    finally:
        log.removeHandler(noticed)
    return told


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "service.yaml"
    path.write_text("models: models\n")
    return path


def test_a_changed_file_is_applied(file: Path) -> None:
    found = follow_while(
        SettingsSource(ServeSettings(), file=file),
        lambda: file.write_text("models: models\nserver: {rate_limit: 3, control: poll}\n"),
        lambda: file.write_text("models: models\nserver: {rate_limit: 4}\n"),
    )
    assert [options.access.requests_second for options in found] == [3.0, 4.0]
    assert [options.control for options in found] == [Control.POLL, Control.EXPLICIT]


def test_a_folder_that_a_cluster_replaces_is_noticed(tmp_path: Path) -> None:
    """As the kubelet does: ..data is a link, which is replaced by another."""
    for number in (1, 2):
        (tmp_path / f"..{number}").mkdir()
        (tmp_path / f"..{number}" / "service.yaml").write_text(f"models: m\nserver: {{rate_limit: {number}}}\n")
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "service.yaml").symlink_to("..data/service.yaml")

    def swap() -> None:
        (tmp_path / "..fresh").symlink_to("..2")
        (tmp_path / "..fresh").replace(tmp_path / "..data")

    (options,) = follow_while(SettingsSource(ServeSettings(), file=tmp_path / "service.yaml"), swap)
    assert options.access.requests_second == 2.0


def test_a_broken_file_is_told_and_the_next_good_one_used(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = follow_while(
        SettingsSource(ServeSettings(), file=file),
        lambda: file.write_text("models: models\nserver: {rate_limt: 3}\n"),
        lambda: file.unlink(),
        lambda: file.write_text("models: models\nserver: {rate_limit: 5}\n"),
    )
    assert [options.access.requests_second for options in found] == [5.0]
    assert [record.reason for record in caplog.records] == [
        f"{file}:2: server.rate_limt: there is no such field here; did you mean rate_limit?",
        f"no such file: {file}",
    ]


def test_new_tokens_are_applied(file: Path) -> None:
    access = file.with_name("access.yaml")
    access.write_text("clients: []\n")
    file.write_text("models: models\nserver: {access: access.yaml}\n")
    (options,) = follow_while(
        SettingsSource(ServeSettings(), file=file),
        lambda: access.write_text(f"clients:\n- {{name: a, token: {TOKEN}}}\n"),
    )
    assert [client.name for client in options.access.clients.values()] == ["a"]


def test_what_was_typed_stays(file: Path) -> None:
    source = SettingsSource(ServeSettings(rate_limit=9), frozenset({"rate_limit"}), file)
    (options,) = follow_while(source, lambda: file.write_text("models: m\nserver: {rate_limit: 3, control: poll}\n"))
    assert (options.access.requests_second, options.control) == (9.0, Control.POLL)


# -- what the server does with it -----------------------------------------------------------------------------------------


def reconfigured(options: ServeOptions, *changes: ServeOptions) -> Server:
    async def run() -> Server:
        server = Server(options)
        for change in changes:
            await reconfigure(server, change)
        await server.close()
        return server

    return asyncio.run(run())


def test_limits_and_tokens_hold_for_every_transport(tmp_path: Path) -> None:
    before = ServeSettings(models=tmp_path).options()
    after = ServeSettings(models=tmp_path, rate_limit=3, body_limit=4096).options()
    server = reconfigured(before, after)
    places = (server._rest, server._metrics_port, server._service)
    assert {place.access.requests_second for place in places} == {3.0}
    assert server._rest.limits.most_body_bytes == server._http.limits.most_body_bytes == 4096


def test_clients_keep_what_they_have_used_up(tmp_path: Path) -> None:
    before, after = (ServeSettings(models=tmp_path, rate_limit=3, body_limit=size).options() for size in (4096, 8192))
    assert reconfigured(before, after)._rest.access is before.access


def test_what_needs_a_restart_is_named_and_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = ServeSettings(models=tmp_path, http_port=0).options()
    after = replace(before, http_port=9, gpus=(1,), poll_seconds=1.0)
    with caplog.at_level(logging.WARNING, "tonnage.serve"):
        server = reconfigured(before, after)
    assert [record.fields for record in caplog.records] == ["http_port,gpus"]
    assert (server.options.http_port, server.options.gpus, server.options.poll_seconds) == (0, (), 1.0)


def test_models_that_are_named_no_more_are_unloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    async def load(_: object, name: str) -> None:
        calls.append(f"load {name}")

    async def unload(_: object, name: str) -> None:
        calls.append(f"unload {name}")

    monkeypatch.setattr("tonnage.serve.models.Models.load", load)
    monkeypatch.setattr("tonnage.serve.models.Models.unload", unload)
    options = ServeSettings(models=tmp_path, load_model=("a", "b")).options()
    reconfigured(options, replace(options, load_models=("b", "c")))
    assert calls == ["load c", "unload a"]
