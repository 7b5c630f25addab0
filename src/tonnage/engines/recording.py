"""Starts a program with the recorder around it, wherever it runs: see `tonnage.profile.recorder`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tonnage.engines.base import Source
from tonnage.profile import recorder

# In a folder of its own beside the program's files, with the names that the modules call each other by.
_FOLDER = ".tonnage"
_PACKAGE = f"{_FOLDER}/tonnage/profile"


def recorded_command(command: tuple[str, ...]) -> tuple[str, ...]:
    """Python, the recorder, which comes with the program, and what Python would have run."""
    python, *rest = command
    return (python, f"{_PACKAGE}/recorder.py", *rest)


def with_recorder(source: Source) -> Source:
    """The program and the recorder's few modules. The digest stays that of the program."""
    here = Path(recorder.__file__).parent
    own = {f"{_PACKAGE}/{name}": (here / name).read_bytes() for name in recorder.MODULES}
    packages = {f"{_FOLDER}/tonnage/__init__.py": b"", f"{_PACKAGE}/__init__.py": b""}
    return replace(source, files={**source.files, **packages, **own})


def without_recorder(source: Source) -> dict[str, bytes]:
    """The program's files alone; no module of a program can be called so."""
    return {name: content for name, content in source.files.items() if not name.startswith(f"{_FOLDER}/")}
