"""A pbtxt file as dictionaries and lists, with the line of every field; and such a document as text again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tonnage.errors import InvalidFile
from tonnage.hardware.yaml_lines import Location, format_location, utf8_text
from tonnage.program.text_format import Block, Plain, Quoted, parse_text

Lines = dict[tuple[str | int, ...], int]
_MOST_BYTES = 1 << 20
_TRUTH = {"true": True, "True": True, "t": True, "false": False, "False": False, "f": False}
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPED = re.compile(r'[\\"\x00-\x1f\x7f]')


class Word(str):
    """A value without quotation marks, such as TYPE_FP32; it is written without them again."""


@dataclass(frozen=True, slots=True)
class TextDocument:
    """A value, and the lines of its fields where they are known."""

    path: str
    value: dict[str, Any]
    lines: Mapping[tuple[str | int, ...], int]

    def line(self, location: Location) -> int:
        """Of a field, or of the nearest thing around it. A list of one may stand there as a single value."""
        place = tuple(location)
        while place:
            for each in (place, tuple(step for step in place if step != 0)):
                if each in self.lines:
                    return self.lines[each]
            place = place[:-1]
        return 1

    def error(self, location: Location, text: str, hint: str = "") -> InvalidFile:
        field = format_location(location)
        where = f"{self.path}:{self.line(location)}" if self.lines else self.path
        return InvalidFile(f"{where}: {field + ': ' if field else ''}{text}", hint)


# -- reading --------------------------------------------------------------------------------------------------------------


def read_pbtxt(path: Path) -> TextDocument:
    """Raises `InvalidFile`."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InvalidFile(f"{path}: cannot be read: {error.strerror}") from None
    return parse_pbtxt(data, str(path))


def parse_pbtxt(data: bytes, path: str) -> TextDocument:
    """The same of a content that came from elsewhere; `path` is what complaints call it."""
    if len(data) > _MOST_BYTES:
        raise InvalidFile(f"{path}: more than {_MOST_BYTES:,} bytes are too many for a configuration")
    lines: Lines = {}
    return TextDocument(path, _plain(parse_text(utf8_text(path, data), path), (), lines), lines)


def _plain(block: Block, at: tuple[str | int, ...], lines: Lines) -> dict[str, Any]:
    """As dictionaries and lists; what is repeated is a list."""
    counts: dict[str, int] = {}
    for name, _, _ in block.entries:
        counts[name] = counts.get(name, 0) + 1
    found: dict[str, Any] = {}
    for name, value, line in block.entries:
        several = counts[name] > 1
        place = (*at, name, len(found.get(name, ()))) if several else (*at, name)
        lines.setdefault((*at, name), line)
        lines[place] = line
        plain = _plain(value, place, lines) if isinstance(value, Block) else _scalar(value)
        if several:
            found.setdefault(name, []).append(plain)
        else:
            found[name] = plain
    return found


def _scalar(value: Quoted | Plain) -> bool | int | float | str:
    """Whether a name in a place for numbers is one (inf, nan) is for others to say."""
    text = value.text
    if isinstance(value, Quoted):
        return text
    if text in _TRUTH:
        return _TRUTH[text]
    if text.lstrip("-")[:1].isalpha() or text.lstrip("-")[:1] == "_":
        return Word(text)
    try:
        return _whole(text)
    except ValueError:
        return float(text.rstrip("fF"))


def _whole(text: str) -> int:
    """As in C: 0x is hexadecimal, a 0 in front is octal."""
    digits = text.lstrip("+-")
    base = 16 if digits[:2] in ("0x", "0X") else 8 if digits[:1] == "0" and digits.isdigit() else 10
    return int(text, base)


# -- writing --------------------------------------------------------------------------------------------------------------


def pbtxt_lines(document: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    """Lists of blocks are repeated, others stand in brackets; an empty list is nothing."""
    space = "  " * depth
    for name, value in document.items():
        if isinstance(value, list) and not any(isinstance(each, dict) for each in value):
            if value:
                yield f"{space}{name}: [{', '.join(map(_value, value))}]"
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):
                yield f"{space}{name} {{"
                yield from pbtxt_lines(each, depth + 1)
                yield f"{space}}}"
            else:
                yield f"{space}{name}: {_value(each)}"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Word | int | float):
        return str(value)
    return f'"{_ESCAPED.sub(_escape, str(value))}"'


def _escape(found: re.Match[str]) -> str:
    return _ESCAPES.get(found.group()) or f"\\{ord(found.group()):03o}"
