"""Which files are a script's own: itself, and what it imports from its folder. Found by reading, nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tonnage.errors import UsageError

_MOST_FILES = 2000


def own_files(script: Path) -> list[Path]:
    """The script and everything below its folder that it imports, and that those import; resolved, and in order."""
    script = script.resolve()
    root, found, ahead = script.parent, set[Path](), [script]
    while ahead:
        file = ahead.pop()
        if file in found:
            continue
        found.add(file)
        if len(found) > _MOST_FILES:
            raise UsageError(f"{script} imports more than {_MOST_FILES} files of its own")
        ahead += _imported(file, root)
    return sorted(found)


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
