"""The list of servers that are trusted."""

from pathlib import Path

import pytest

from tonnage.configure.signing import KnownServer
from tonnage.errors import InvalidFile, NotFound, UsageError
from tonnage.service.known_servers import add_server, known_servers, remove_server

FIRST = KnownServer(name="laboratory", public_key=b"1" * 32, url="http://127.0.0.1:8642")
IMPOSTOR = KnownServer(name="laboratory", public_key=b"2" * 32, url="http://127.0.0.1:8643")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "servers.json"


def test_none_is_known_at_first(path: Path) -> None:
    assert known_servers(path) == {}


def test_servers_are_added_and_removed(path: Path) -> None:
    second = KnownServer(name="other", public_key=b"3" * 32)
    add_server(FIRST, path)
    add_server(second, path)
    assert known_servers(path) == {"laboratory": FIRST, "other": second}
    remove_server("laboratory", path)
    assert list(known_servers(path)) == ["other"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_another_key_under_a_known_name_is_refused(path: Path) -> None:
    add_server(FIRST, path)
    add_server(FIRST, path)
    with pytest.raises(UsageError, match="known with another key"):
        add_server(IMPOSTOR, path)
    assert known_servers(path) == {"laboratory": FIRST}


def test_removing_what_is_not_known_says_what_is(path: Path) -> None:
    add_server(FIRST, path)
    with pytest.raises(NotFound) as error:
        remove_server("labratory", path)
    assert error.value.hint == "known are: laboratory"


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"servers": 1}', '{"servers": [{"name": "a"}]}',
             '{"servers": [{"name": "a b", "public_key": "", "url": ""}]}',
             '{"servers": [{"name": "a", "public_key": "zz", "url": ""}]}'],
)  # fmt: skip
def test_a_damaged_list_is_refused(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(InvalidFile, match=r"servers\.json"):
        known_servers(path)
    with pytest.raises(InvalidFile):
        add_server(FIRST, path)
    assert path.read_text() == text
