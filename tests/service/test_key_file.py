"""The server's key: made once, for nobody else to read, refused when damaged."""

from pathlib import Path

import pytest

from tonnage.errors import InvalidFile, UsageError
from tonnage.service.keys import load_or_make_key


def test_a_key_is_made_once(tmp_path: Path) -> None:
    first, made = load_or_make_key(tmp_path / "server.key")
    again, made_again = load_or_make_key(tmp_path / "server.key")
    assert (made, made_again) == (True, False)
    assert first == again
    assert len(first) == 32
    assert [path.name for path in tmp_path.iterdir()] == ["server.key"]


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "server.key"
    load_or_make_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    with pytest.raises(UsageError, match="others may read"):
        load_or_make_key(path)


@pytest.mark.parametrize("content", [b"", b"abc", b"0" * 63, b"z" * 64, b"0" * 64 + b"\n\n", b"\xff" * 64])
def test_a_damaged_key_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "server.key"
    path.write_bytes(content)
    with pytest.raises(InvalidFile, match="damaged"):
        load_or_make_key(path)
    assert path.read_bytes() == content


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        load_or_make_key(tmp_path / "none" / "server.key")
