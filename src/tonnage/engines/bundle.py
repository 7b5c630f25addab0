"""A program's own files: the script, and what it imports from its own folder."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from tonnage.engines.base import Source
from tonnage.errors import InvalidFile, NotFound, UsageError
from tonnage.program.own_files import own_files
from tonnage.units import MIB, format_bytes

_LARGEST_BYTES = 256 * MIB
_LEFT_OUT = {"__pycache__", ".git", ".venv", "venv", ".mypy_cache", ".pytest_cache", ".ruff_cache", "node_modules"}


def bundle(script: Path, *, folder: Path | None = None, requirements: Path | None = None) -> Source:
    """The script and its files. With a folder, everything in it; else what the script needs."""
    if folder is None:
        files = {name: path.read_bytes() for name, path in _needed(script)}
        entry = script.resolve().name
    else:
        files, entry = _everything(folder), _entry(script, folder)
    lines = _requirement_lines(requirements) if requirements else ()
    return Source(files=files, digest=digest_of(files), entry=entry, requirements=lines)


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Into an empty folder, and nowhere else. Everybody who gets as far as the folder may read them."""
    folder.mkdir()
    for name, content in files.items():
        path = (folder / name).resolve()
        if not path.is_relative_to(folder.resolve()):
            raise UsageError(f"{name} would be outside of the program's folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    # Whatever the user's umask is here: in an image the job runs as nobody.
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def digest_of(files: Mapping[str, bytes]) -> str:
    """One file: its own SHA-256, as `sha256sum` prints it. Several: that of their names and digests."""
    single = [hashlib.sha256(content).hexdigest() for content in files.values()]
    if len(single) == 1:
        return f"sha256:{single[0]}"
    listing = "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files))
    return f"sha256:{hashlib.sha256(listing.encode()).hexdigest()}"


def _needed(script: Path) -> Iterator[tuple[str, Path]]:
    """The very files that a label's digest is made of."""
    try:
        ast.parse(script.read_bytes(), str(script))
    except (SyntaxError, ValueError) as error:
        raise InvalidFile(f"{script} is no Python program: {error}") from None
    root = script.resolve().parent
    return ((path.relative_to(root).as_posix(), path) for path in own_files(script))


def _everything(folder: Path) -> dict[str, bytes]:
    if not folder.is_dir():
        raise NotFound(f"there is no folder {folder}")
    files, size = {}, 0
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if path.is_file() and not _LEFT_OUT & set(inside.parts):
            size += path.stat().st_size
            if size > _LARGEST_BYTES:
                raise UsageError(
                    f"{folder} has more than {format_bytes(_LARGEST_BYTES)}", "mount its data instead, with --mount"
                )
            files[inside.as_posix()] = path.read_bytes()
    return files


def _entry(script: Path, folder: Path) -> str:
    try:
        return script.resolve().relative_to(folder.resolve()).as_posix()
    except ValueError:
        raise UsageError(f"{script} is not in the folder {folder}") from None


def _requirement_lines(path: Path) -> tuple[str, ...]:
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    lines = (line.strip() for line in text.splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))
