"""The folder of models: which there are, in which versions, and whether they changed. It reads names, not models."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tonnage.errors import NotFound
from tonnage.serve.errors import UnknownThing

CONFIGURATIONS = ("config.pbtxt", "config.yaml", "config.yml")


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """`versions` are the folders whose names are whole numbers from 1 on; `stamp` changes when any of their files does."""

    name: str
    path: Path
    configuration: Path | None
    versions: dict[int, Path]
    stamps: dict[int, tuple[tuple[str, int, int], ...]] = field(
        default_factory=dict
    )  # by version; 0: the configuration


@dataclass(frozen=True, slots=True)
class Repository:
    """One folder for each model."""

    path: Path

    def models(self) -> dict[str, ModelFolder]:
        if not self.path.is_dir():
            raise NotFound(f"there is no folder {self.path}")
        folders = sorted(each for each in self.path.iterdir() if each.is_dir() and not each.name.startswith("."))
        return {folder.name: read_folder(folder) for folder in folders}

    def model(self, name: str) -> ModelFolder:
        """Raises `UnknownThing`; names that lead out of the folder are unknown as well."""
        folder = self.path / name
        if not name or name.startswith(".") or "/" in name or "\0" in name or not folder.is_dir():
            raise UnknownThing(f"the repository has no model {name!r}")
        return read_folder(folder)


def read_folder(folder: Path) -> ModelFolder:
    configuration = next((folder / name for name in CONFIGURATIONS if (folder / name).is_file()), None)
    versions = {
        int(each.name): each
        for each in folder.iterdir()
        if each.is_dir() and each.name.isascii() and each.name.isdigit() and not each.name.startswith("0")
    }
    stamps = {version: _stamp(path) for version, path in versions.items()}
    stamps[0] = tuple(sorted(_entry(each) for each in folder.iterdir() if each.is_file()))
    return ModelFolder(folder.name, folder, configuration, dict(sorted(versions.items())), stamps)


def _stamp(folder: Path) -> tuple[tuple[str, int, int], ...]:
    return tuple(sorted(_entry(each) for each in folder.rglob("*") if each.is_file()))


def _entry(file: Path) -> tuple[str, int, int]:
    status = file.stat()
    return file.name, status.st_mtime_ns, status.st_size
