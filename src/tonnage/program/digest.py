"""Names a program by what it is made of, so that a decision about it can be tied to it."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

from tonnage.errors import NotFound
from tonnage.program.program import Program


def program_digest(program: Program) -> str:
    """`sha256:` and the digest of the program's file, the function's name and the arguments."""
    digest = hashlib.sha256()
    for part in (_content(program), program.function.encode(), *(word.encode() for word in program.arguments)):
        digest.update(len(part).to_bytes(8, "big") + part)
    return f"sha256:{digest.hexdigest()}"


def _content(program: Program) -> bytes:
    path = Path(program.target)
    if program.kind == "function" and not path.is_file():
        path = _module_file(program.target)
    try:
        return path.read_bytes()
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}") from None


def _module_file(name: str) -> Path:
    local = Path(*name.split(".")).with_suffix(".py")
    if local.is_file():
        return local
    try:
        found = find_spec(name)
    except ModuleNotFoundError:
        found = None
    if found is None or found.origin is None:
        raise NotFound(f"there is no module {name}")
    return Path(found.origin)
