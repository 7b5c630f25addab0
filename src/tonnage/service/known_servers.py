"""The servers whose labels are deployed: name, public key and address, in a file of the user."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from platformdirs import user_config_path

from tonnage.configure.signing import KnownServer
from tonnage.errors import InvalidFile, NotFound, UsageError
from tonnage.service.locked_file import replaced

VARIABLE = "TONNAGE_SERVERS"
_KEY = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def servers_path() -> Path:
    named = os.environ.get(VARIABLE)
    return Path(named) if named else user_config_path("tonnage") / "servers.json"


def known_servers(path: Path | None = None) -> dict[str, KnownServer]:
    """By name; none where there is no file yet. Raises `InvalidFile`."""
    path = path or servers_path()
    try:
        return _parse(path, path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def add_server(server: KnownServer, path: Path | None = None, *, replace: bool = False) -> None:
    """Raises `UsageError` where the name has another key already: that is what an impostor would have."""
    path = path or servers_path()
    with replaced(path) as file:
        servers = _parse(path, file.content)
        before = servers.get(server.name)
        if before is not None and before.public_key != server.public_key and not replace:
            raise UsageError(
                f"a server {server.name} is known with another key: {before.fingerprint}",
                f"if its operator confirms the new key: tonnage servers remove {server.name}, then add it again",
            )
        file.content = _text(servers | {server.name: server})


def remove_server(name: str, path: Path | None = None) -> None:
    path = path or servers_path()
    with replaced(path) as file:
        servers = _parse(path, file.content)
        if name not in servers:
            raise NotFound(f"no server {name} is known", f"known are: {', '.join(servers) or 'none'}")
        del servers[name]
        file.content = _text(servers)


def checked_name(name: object) -> str:
    """As labels can carry it; raises `InvalidFile`."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidFile(
            f"{name!r:.80} is no name of a server", "letters, digits, dots, dashes and underscores, up to 63"
        )
    return name


def server_of(name: object, public_key: object, url: object) -> KnownServer:
    """Checked; raises `InvalidFile`."""
    known = checked_name(name)
    if not isinstance(public_key, str) or not _KEY.fullmatch(public_key):
        raise InvalidFile(f"the server {name} has no public key of 64 hexadecimal digits")
    if not isinstance(url, str):
        raise InvalidFile(f"the server {name} has no address")
    return KnownServer(name=known, public_key=bytes.fromhex(public_key), url=url)


def _parse(path: Path, content: bytes | None) -> dict[str, KnownServer]:
    if content is None:
        return {}
    try:
        plain = json.loads(content)
        rows = plain["servers"]
        found = [server_of(row["name"], row["public_key"], row["url"]) for row in rows]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidFile(
            f"{path} is no list of servers, or a damaged one", "remove it, and add the servers again"
        ) from None
    except InvalidFile as error:
        raise InvalidFile(f"{path}: {error.message}") from None
    return {server.name: server for server in found}


def _text(servers: Mapping[str, KnownServer]) -> bytes:
    rows = [{"name": s.name, "public_key": s.public_key.hex(), "url": s.url} for s in servers.values()]
    return json.dumps({"servers": rows}, indent=2).encode() + b"\n"
