"""The token that agents and those who ask them share: a file that nobody else can read."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from tonnage.errors import NotFound, UsageError

_LEAST_LETTERS = 16
_MOST_BYTES = 4096


def token_path(given: Path | None) -> Path:
    """The file that was named, or the usual one of this user."""
    from platformdirs import user_config_path

    return given or user_config_path("tonnage", appauthor=False) / "agent-token"


def read_token(given: Path | None) -> bytes:
    """Raises `NotFound` or `UsageError`."""
    path = token_path(given)
    try:
        content, mode = path.read_bytes()[:_MOST_BYTES].strip(), path.stat().st_mode
    except FileNotFoundError:
        raise NotFound(
            f"no token: {path} is not there",
            "copy it from a node where tonnage cluster agent was started, or use --token-file",
        ) from None
    except OSError as error:
        raise UsageError(f"the token {path} cannot be read: {error.strerror}") from None
    if len(content) < _LEAST_LETTERS:
        raise UsageError(f"the token {path} is too short: {len(content)} letters", "use 16 or more, hard to guess")
    if mode & 0o077:
        raise UsageError(f"others may read the token {path}", f"chmod 600 {path}")
    return content


def read_or_make_token(given: Path | None) -> tuple[bytes, bool]:
    """The token, and whether it is new."""
    path = token_path(given)
    made = not path.exists()
    if made:
        _make(path)
    return read_token(given), made


def _make(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
    except FileExistsError:
        return  # another agent of this user was quicker
    except OSError as error:
        raise UsageError(f"the token {path} cannot be written: {error.strerror}") from None
