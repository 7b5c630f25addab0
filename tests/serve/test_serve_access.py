"""Who may do what, and how often."""

from __future__ import annotations

from pathlib import Path

import pytest

from tonnage.errors import InvalidFile
from tonnage.serve.access import Access, read_access
from tonnage.serve.errors import Busy, Forbidden, Unauthorized
from tonnage.serve.rest import _group

TOKEN, OTHER = "a-token-of-the-first", "a-token-of-another"
FILE = f"""
clients:
  - name: first
    token: {TOKEN}
    routes: [inference]
    requests_second: 2
  - name: other
    token: {OTHER}
"""


def written(tmp_path: Path, text: str = FILE) -> Path:
    path = tmp_path / "access.yaml"
    path.write_text(text)
    return path


def test_without_a_file_everybody_may_do_everything() -> None:
    assert Access().is_open
    assert Access().check("repository", "", "1.2.3.4", 0.0) == "1.2.3.4"


def test_a_token_opens_the_routes_that_it_is_for(tmp_path: Path) -> None:
    access = read_access(written(tmp_path))
    assert access.check("inference", f"Bearer {TOKEN}", "", 0.0) == "first"
    assert access.check("repository", f"bearer {OTHER}", "", 0.0) == "other"
    assert access.check("health", "", "1.2.3.4", 0.0) == "1.2.3.4"
    with pytest.raises(Forbidden, match="the token of first is not for repository"):
        access.check("repository", f"Bearer {TOKEN}", "", 0.0)


@pytest.mark.parametrize(
    "given", ["", "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x"]
)
def test_anything_else_opens_nothing(tmp_path: Path, given: str) -> None:
    with pytest.raises(Unauthorized):
        read_access(written(tmp_path)).check("inference", given, "", 0.0)


def test_a_client_may_ask_only_so_often(tmp_path: Path) -> None:
    access = read_access(written(tmp_path))
    for _ in range(2):
        access.check("inference", f"Bearer {TOKEN}", "", 10.0)
    with pytest.raises(Busy, match="first may ask 2 times a second"):
        access.check("inference", f"Bearer {TOKEN}", "", 10.1)
    access.check("inference", f"Bearer {OTHER}", "", 10.1)
    access.check("inference", f"Bearer {TOKEN}", "", 10.6)


def test_addresses_have_limits_of_their_own_and_are_forgotten() -> None:
    access = Access(requests_second=1.0)
    for number in range(11_000):
        access.check("inference", "", str(number), 0.0)
    assert len(access._buckets) == 10_000
    with pytest.raises(Busy):
        access.check("inference", "", "10999", 0.0)


@pytest.mark.parametrize(
    "text",
    [
        "clients: [{name: a, token: 1234567890123456789}]",
        "clients: [{name: a, token: short-secret}]",
        "clients: [{name: a, token: a-secret-of-two}, {name: b, token: [a-secret-of-two]}]",
    ],
)
def test_what_is_wrong_with_a_token_is_told_without_it(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidFile, match="token: must be text of at least 16 letters") as raised:
        read_access(written(tmp_path, text))
    assert "secret" not in str(raised.value) + raised.value.hint
    assert "12345" not in str(raised.value) + raised.value.hint


@pytest.mark.parametrize(("same", "told"), [("token", "the same token"), ("name", "is called 'a'")])
def test_two_clients_cannot_be_taken_for_each_other(tmp_path: Path, same: str, told: str) -> None:
    names = {"token": ("a", "b"), "name": ("a", "a")}[same]
    tokens = {"token": (TOKEN, TOKEN), "name": (TOKEN, OTHER)}[same]
    clients = [f"{{name: {name}, token: {token}}}" for name, token in zip(names, tokens, strict=True)]
    with pytest.raises(InvalidFile, match=told):
        read_access(written(tmp_path, f"clients: [{', '.join(clients)}]"))


@pytest.mark.parametrize(
    ("path", "group"),
    [
        ("/v2/models/m/infer", "inference"), ("/v2/models/m/versions/1/infer", "inference"),
        ("/v2/models/m/ready", "health"), ("/v2/health/live", "health"), ("/v2/models/m", "metadata"), ("/v2", "metadata"),
        ("/v2/models/m/stats", "statistics"), ("/v2/models/stats", "statistics"),
        ("/v2/repository/models/m/load", "repository"), ("/v2/repository/models/stats/load", "repository"),
        ("/v2/repository/models/infer", "repository"), ("/v2/systemsharedmemory/region/infer", "shared-memory"),
        ("/", "page"), ("/page/state", "page"), ("/models/m/infer", "page"),
    ],
)  # fmt: skip
def test_a_route_belongs_to_one_group(path: str, group: str) -> None:
    assert _group(path.split("/")) == group
