"""The server's private key in a file that nobody else can read: 64 hexadecimal digits, made on the first start."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

from tonnage.errors import InvalidFile, UsageError

_KEY = re.compile(rb"[0-9a-f]{64}\n?")


def load_or_make_key(path: Path) -> tuple[bytes, bool]:
    """The key, and whether it is new. Raises `InvalidFile` for a damaged one: a new key would make every client refuse."""
    made = not path.exists()
    if made:
        _make(path)
    return load_key(path), made


def load_key(path: Path) -> bytes:
    try:
        content, mode = path.read_bytes(), path.stat().st_mode
    except OSError as error:
        raise UsageError(f"the key {path} cannot be read: {error.strerror}") from None
    if not _KEY.fullmatch(content):
        raise InvalidFile(
            f"{path} is no key, or a damaged one: 64 hexadecimal digits should be in it",
            "restore it from a backup; with a new key (remove the file) every client has to run tonnage servers add again",
        )
    if mode & 0o077:
        raise UsageError(f"others may read the key {path}", f"chmod 600 {path}")
    return bytes.fromhex(content.decode())


def _make(path: Path) -> None:
    """Written aside and linked into place: two servers that start at once share one key, and none is ever half there."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(partial, path)
        except FileExistsError:
            pass
        finally:
            partial.unlink()
    except OSError as error:
        raise UsageError(f"the key {path} cannot be written: {error.strerror}") from None
