"""A message of Caffe's: fields with their types and the lines they stand on, whichever format they were read from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tonnage.errors import InvalidFile, NotFound
from tonnage.program.caffe.schema import ENUMERATIONS, IGNORED, KINDS, OPEN, Field
from tonnage.program.text_format import Block, Plain, Quoted, Value, parse_text

_MOST_TEXT_BYTES = 64 << 20
_TRUE, _FALSE = ("true", "True", "t", "1"), ("false", "False", "f", "0")
_RANGES = {"int": (-(2**63), 2**63 - 1), "uint": (0, 2**32 - 1)}


class Message:
    """Values by field. `file` and `line` tell where it stands; line 0 is none, as in a binary file."""

    __slots__ = ("_lines", "_values", "file", "kind", "line")

    def __init__(self, kind: str, file: str = "", line: int = 0) -> None:
        self.kind, self.file, self.line = kind, file, line
        self._values: dict[str, list[Any]] = {}
        self._lines: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def add(self, name: str, value: Any, line: int = 0) -> None:
        self._values.setdefault(name, []).append(value)
        self._lines.setdefault(name, line)

    def put(self, name: str, *values: Any) -> None:
        """These values instead of any that were there."""
        self._values[name] = list(values)

    def get(self, name: str) -> Any:
        """The value of a field that is not repeated: the last one given, its default, or None."""
        values = self._values.get(name)
        return values[-1] if values else KINDS[self.kind].fields[name].default

    def all(self, name: str) -> list[Any]:
        """The values of a repeated field."""
        return self._values.get(name, [])

    def part(self, name: str) -> Message:
        """A message in this one; an empty one if it is missing."""
        found = self.get(name)
        return found if found is not None else Message(KINDS[self.kind].fields[name].type, self.file, self.line)

    def take(self, names: Sequence[str], source: Message) -> None:
        """Whatever another message says about these fields."""
        for name in names:
            if name in source:
                self._values[name] = source._values[name]
                self._lines[name] = source._lines.get(name, 0)

    def line_of(self, name: str) -> int:
        return self._lines.get(name) or self.line


def at(file: str, line: int) -> str:
    """Where something stands, to begin a sentence with."""
    return f"{file}, line {line}" if line else file


def one_line(text: str) -> str:
    """A sentence in which names from a file cannot begin a new line, nor do anything else to a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def read_text_message(path: Path, kind: str) -> Message:
    """What a file in text format says; raises `NotFound` or `InvalidFile`."""
    try:
        if path.stat().st_size > _MOST_TEXT_BYTES:
            raise InvalidFile(f"{path} is too large for a prototxt", "a binary file is a caffemodel: name it as one")
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except OSError as error:
        raise InvalidFile(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidFile(f"{path} is no text", "a binary file is a caffemodel: name it as one") from None
    return message_of(parse_text(text, str(path)), kind, str(path))


def message_of(block: Block, kind: str, file: str) -> Message:
    """A block of text as a message of this kind; raises `InvalidFile` for what such a message cannot hold."""
    message = Message(kind, file, block.line)
    fields = KINDS[kind].fields
    for name, value, line in block.entries:
        field = fields.get(name)
        if field is None:
            if kind not in OPEN:
                _refuse(file, line, f"{_spoken(kind)} have no field {name}")
            continue
        if field.type == IGNORED:
            continue
        if name in message and not field.repeated and field.type in KINDS:
            _refuse(file, line, f"{name} stands there twice")
        message.add(name, _typed(value, field, file, line), line)
    return message


def _typed(value: Value, field: Field, file: str, line: int) -> Any:
    if field.type in KINDS:
        if not isinstance(value, Block):
            _refuse(file, line, f"{field.name} should be followed by braces")
        return message_of(value, field.type, file)
    if field.type == "string":
        if not isinstance(value, Quoted):
            _refuse(file, line, f"{field.name} should be a text in quotation marks")
        return value.text
    if not isinstance(value, Plain):
        _refuse(file, line, f"{field.name} should be {_wanted(field)}")
    found = _scalar(value.text, field.type)
    if found is None:
        _refuse(file, line, f"{field.name} is {value.text[:40]}, not {_wanted(field)}")
    return found


def _scalar(text: str, type_: str) -> bool | int | float | str | None:
    """None if the text is no such value."""
    if type_ == "bool":
        return True if text in _TRUE else (False if text in _FALSE else None)
    if type_ in ENUMERATIONS:
        names = ENUMERATIONS[type_]
        return text if text in names.values() else names.get(_whole(text, "int") or 0) if text.isdecimal() else None
    return _whole(text, type_) if type_ in _RANGES else _real(text)


def _whole(text: str, type_: str) -> int | None:
    digits = text.lstrip("+-")
    low, high = _RANGES[type_]
    try:
        octal = len(digits) > 1 and digits.startswith("0") and digits.isdecimal()
        number = int(text, 8) if octal else int(text, 0) if len(text) < 30 else high + 1
    except ValueError:
        return None
    return number if low <= number <= high else None


def _real(text: str) -> float | None:
    name = text.lstrip("-").lower()
    if name in ("inf", "infinity", "nan"):
        return float(text)
    number = _whole(text, "int")
    if number is not None:
        return float(number)
    try:
        found = float(text.rstrip("fF")) if "_" not in text else math.nan
    except ValueError:
        return None
    return None if math.isnan(found) else found


def _wanted(field: Field) -> str:
    if field.type in ENUMERATIONS:
        return "one of " + ", ".join(list(ENUMERATIONS[field.type].values())[:8])
    words = {"bool": "true or false", "int": "a whole number", "uint": "a whole number, 0 or more"}
    return words.get(field.type, "a number")


def _spoken(kind: str) -> str:
    return f"the settings {kind}" if kind.endswith("Parameter") else f"messages {kind}"


def _refuse(file: str, line: int, problem: str) -> NoReturn:
    raise InvalidFile(f"{at(file, line)}: {one_line(problem)}")
