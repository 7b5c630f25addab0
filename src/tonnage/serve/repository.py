"""The folder of models: which there are, in which versions, and whether they changed. It reads names, not models."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from tonnage.errors import InvalidFile, NotFound
from tonnage.serve.errors import UnknownThing

CONFIGURATIONS = ("config.pbtxt", "config.yaml", "config.yml")
_MOST_DIGITS = 18  # of a version

# Name, moment of the last change, bytes and number of each file: they change when it does.
Stamp: TypeAlias = "tuple[tuple[str, int, int, int], ...]"


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """`versions` are the folders whose names are whole numbers from 1 on."""

    name: str
    path: Path
    configuration: Path | None = None
    versions: dict[int, Path] = field(default_factory=dict)
    stamps: dict[int, Stamp] = field(default_factory=dict)  # by version; 0: the files beside them
    problem: str = ""  # why it cannot be read
    keeper: object = field(default=None, compare=False, repr=False)  # of files that go with the last who holds this

    def check(self) -> None:
        """Raises `InvalidFile` where there is nothing to serve in it."""
        if self.problem:
            raise InvalidFile(f"{self.path} cannot be read: {self.problem}")
        if not self.versions:
            raise InvalidFile(
                f"{self.path} has no versions", f"put the model into a folder with a number: {self.path}/1/"
            )


@dataclass(frozen=True, slots=True)
class Repository:
    """One folder for each model."""

    path: Path

    def names(self) -> list[str]:
        """Raises `NotFound` where the folder itself is not there."""
        try:
            with os.scandir(self.path) as entries:
                return sorted(each.name for each in entries if not each.name.startswith(".") and each.is_dir())
        except OSError as error:
            raise NotFound(f"there is no folder {self.path}: {error.strerror}") from None

    def models(self) -> dict[str, ModelFolder]:
        return {name: read_folder(self.path / name) for name in self.names()}

    def model(self, name: str) -> ModelFolder:
        """Raises `UnknownThing`; names that lead out of the folder are unknown as well."""
        if not name or name.startswith(".") or "/" in name or "\0" in name or not _is_folder(self.path / name):
            raise UnknownThing(f"the repository has no model {name[:100]!r}")
        return read_folder(self.path / name)


def read_folder(folder: Path) -> ModelFolder:
    """As it is now; it may change under our eyes."""
    try:
        configuration = next((folder / name for name in CONFIGURATIONS if (folder / name).is_file()), None)
        versions = {int(each.name): each for each in folder.iterdir() if _is_version(each)}
        stamps = {version: _stamp(path, _files_below(path)) for version, path in versions.items()}
        stamps[0] = _stamp(folder, (each for each in folder.iterdir() if each.is_file()))
    except OSError as error:
        return ModelFolder(folder.name, folder, problem=error.strerror or str(error))
    return ModelFolder(folder.name, folder, configuration, dict(sorted(versions.items())), stamps)


def _is_folder(path: Path) -> bool:
    """Names that no file system takes are no folders."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def _is_version(path: Path) -> bool:
    name = path.name
    return (
        name.isascii() and name.isdigit() and name[0] != "0" and len(name) <= _MOST_DIGITS and path.is_dir()
    )  # fmt: skip


def _files_below(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise error

    for parent, _, names in os.walk(folder, onerror=refuse):
        yield from (Path(parent, name) for name in names)


def _stamp(folder: Path, files: Iterator[Path]) -> Stamp:
    """Hidden files are no part of a model: tools leave them while they copy."""
    found = []
    for file in files:
        if file.name.startswith("."):
            continue
        try:
            status = file.stat()
        except FileNotFoundError:  # gone since it was listed, or a link to nothing
            continue
        found.append((str(file.relative_to(folder)), status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(sorted(found))
