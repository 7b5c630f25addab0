"""One name for a program as it stands: its script, its arguments and the modules of its own that it imports.

Found by reading, nothing is run. The digest depends on contents and on names relative to the program's folder, so that it
is the same on another machine and in another folder. Installed packages do not count: those are the image's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from tonnage.errors import NotFound, UsageError
from tonnage.program.own_files import own_files
from tonnage.program.program import Program

_MOST_BYTES = 1 << 30


def program_digest(program: Program) -> str:
    """`sha256:...`; raises `NotFound` where a file of the program is missing."""
    path = _file_of(program)
    files = own_files(path) if path.suffix == ".py" else [path]
    digests = {file.relative_to(path.parent).as_posix(): _digest(file) for file in files}
    return _combine(program, path.name, digests)


def contents_digest(program: Program, entry: str, files: Mapping[str, bytes]) -> str:
    """The same of contents that were read already, by their names: of exactly these, whatever the files hold by now."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    return _combine(program, entry, digests)


def _combine(program: Program, entry: str, digests: Mapping[str, str]) -> str:
    parts = sorted(digests.items(), key=lambda part: PurePosixPath(part[0]))
    kind = "file" if program.kind in ("onnx", "caffe", "trace") else program.kind
    # The script itself is named apart: a folder may hold several that import each other.
    said = [kind, entry, program.function, list(program.arguments), parts]
    return "sha256:" + hashlib.sha256(json.dumps(said).encode()).hexdigest()


def _file_of(program: Program) -> Path:
    path = Path(program.target)
    if program.kind == "function" and not path.is_file():
        stem = Path(*program.target.split("."))
        path = next((p for p in (stem.with_suffix(".py"), stem / "__init__.py") if p.is_file()), path)
    if not path.is_file():
        raise NotFound(f"there is no file {program.target} to take a digest of")
    return path.resolve()


def _digest(file: Path) -> str:
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise UsageError(f"{file} is too large for a program")
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
