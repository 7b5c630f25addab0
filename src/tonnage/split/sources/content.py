"""The bytes of a file that a user names: plain or compressed, and never more than a network can have."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from pathlib import Path
from typing import Any

from tonnage.errors import InvalidFile, NotFound

MOST_BYTES = 1 << 28
_GZIP = b"\x1f\x8b"


def read_content(path: str | Path, most_bytes: int = MOST_BYTES) -> bytes:
    """What a file holds, unpacked; raises `NotFound` or `InvalidFile`."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(most_bytes + 1)
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except OSError as error:
        raise InvalidFile(f"{path} cannot be read: {error.strerror}") from None
    if content.startswith(_GZIP):
        content = _unpacked(content, path, most_bytes)
    if len(content) > most_bytes:
        raise InvalidFile(
            f"{path} holds more than {most_bytes >> 20} MiB, too much for a network", "is it the right file?"
        )
    if not content.strip():
        raise InvalidFile(f"{path} is empty", "name a network, a profile, an ONNX file or a program")
    return content


def read_text(path: str | Path) -> str:
    """The same as text."""
    try:
        return read_content(path).decode()
    except UnicodeDecodeError:
        raise InvalidFile(f"{path} is not text", "is it the right file?") from None


def read_json(path: str | Path) -> Any:
    """The same as what the JSON in it says."""
    return parse_json(read_text(path), path)


def parse_json(text: str, path: str | Path) -> Any:
    """What the text of a file says."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidFile(
            f"{path} is not JSON: {error.msg.lower()} in line {error.lineno}", "it may be only a part of the file"
        ) from None
    except (RecursionError, ValueError):  # too deep, or a number with thousands of digits
        raise InvalidFile(f"{path} is JSON that no network needs", "is it the right file?") from None


def _unpacked(content: bytes, path: str | Path, most_bytes: int) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            return file.read(most_bytes + 1)
    except (OSError, EOFError, zlib.error):
        raise InvalidFile(f"{path} is compressed, but damaged or only a part", "copy it again") from None
