"""One name for a program as it stands: its script, its arguments and the modules of its own that it imports.

Found by reading, nothing is run. The digest depends on contents and on names relative to the program's folder, so that it
is the same on another machine and in another folder. Installed packages do not count: those are the image's.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from tonnage.errors import NotFound, UsageError
from tonnage.program.program import Program

_MOST_FILES = 2000
_MOST_BYTES = 1 << 30


def program_digest(program: Program) -> str:
    """`sha256:...`; raises `NotFound` where a file of the program is missing."""
    path = _file_of(program)
    root = path.parent
    files = sorted(_own_files(path, root)) if path.suffix == ".py" else [path]
    parts = [(file.relative_to(root).as_posix(), _digest(file)) for file in files]
    kind = "file" if program.kind in ("onnx", "trace") else program.kind
    # The script itself is named apart: a folder may hold several that import each other.
    said = [kind, path.name, program.function, list(program.arguments), parts]
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


def _own_files(script: Path, root: Path) -> set[Path]:
    """The script and everything below its folder that it imports, and that those import."""
    found: set[Path] = set()
    ahead = [script]
    while ahead:
        file = ahead.pop()
        if file in found:
            continue
        found.add(file)
        if len(found) > _MOST_FILES:
            raise UsageError(f"{script} imports more than {_MOST_FILES} files of its own")
        ahead += _imported(file, root)
    return found


def _imported(file: Path, root: Path) -> Iterator[Path]:
    for name in _names(file, root):
        yield from _resolve(name, root)


def _names(file: Path, root: Path) -> Iterator[tuple[str, ...]]:
    """Dotted names as they would be looked up from the root; what cannot be parsed imports nothing."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, RecursionError, OSError):
        return
    package = file.parent.relative_to(root).parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            before = package[: len(package) - node.level + 1] if node.level else ()
            module = (*before, *(node.module.split(".") if node.module else ()))
            yield module
            yield from ((*module, alias.name) for alias in node.names)


def _resolve(name: tuple[str, ...], root: Path) -> Iterator[Path]:
    """The files that importing a name runs: each package on the way, and the module."""
    folder = root
    for part in name:
        for file in (folder / f"{part}.py", folder / part / "__init__.py"):
            if file.is_file() and file.resolve().is_relative_to(root):
                yield file.resolve()
        folder = folder / part
