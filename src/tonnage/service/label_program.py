"""Which program a label is for, in a file beside it: a label itself holds the digest only.

The file is not signed and needs not be: a program that it names counts only if its digest is that of the label.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from tonnage.errors import InvalidFile, NotFound, UsageError
from tonnage.program.program import Program, parse_program

_MOST_BYTES = 1 << 20


def is_label(program: Path) -> bool:
    """What is deployed is a script or a label; a label is JSON, whatever its name."""
    if program.suffix == ".json":
        return True
    try:
        with program.open("rb") as file:
            return file.read(64).lstrip().startswith(b"{")
    except OSError:
        return False


def program_path(label: Path) -> Path:
    """`label.json.program` for `label.json`."""
    return label.with_name(label.name + ".program")


def write_program(label: Path, program: Program) -> None:
    """By its place relative to the label, so that both may be moved together."""
    target = program.target
    if Path(target).is_file():
        target = os.path.relpath(target, label.parent)
    plain = {"target": target, "function": program.function, "arguments": list(program.arguments)}
    try:
        program_path(label).write_text(json.dumps(plain) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{program_path(label)} cannot be written: {error.strerror}") from None


def read_program(label: Path) -> Program:
    """Raises `NotFound` or `InvalidFile`."""
    path = program_path(label)
    try:
        plain = json.loads(path.read_bytes()[:_MOST_BYTES])
        target, function, arguments = plain["target"], plain["function"], plain["arguments"]
    except FileNotFoundError:
        hint = "it is written beside the label and moves with it; tonnage configure writes both"
        raise NotFound(f"{path}, which names the program of the label, is missing", hint) from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidFile(f"{path} names no program", "run tonnage configure again") from None
    if not isinstance(target, str) or not isinstance(function, str) or not _are_words(arguments):
        raise InvalidFile(f"{path} names no program", "run tonnage configure again")
    beside = label.parent / target
    found = str(beside) if beside.is_file() else target
    try:
        return parse_program(f"{found}:{function}" if function else found, tuple(arguments))
    except NotFound:
        hint = "a label moves with its program, or ask for another one: tonnage configure"
        raise NotFound(f"{label} is for {target}, and there is no {beside}", hint) from None


def _are_words(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)
