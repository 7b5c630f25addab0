"""Reads protobuf's wire format, of which a caffemodel is one, straight from the file's pages.

Numbers of blobs are views of the mapped file: a model of 500 MB takes no memory until its weights are copied, once, to
where they are used. Messages cannot nest deeper than the schema does, and the number of fields is bounded.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from tonnage.errors import InvalidFile, NotFound
from tonnage.program.caffe.message import Message
from tonnage.program.caffe.schema import ENUMERATIONS, IGNORED, KINDS, Field

MOST_FIELDS = 4_000_000
_MOST_TEXT = 1 << 20
_VARINT, _FIXED64, _BYTES, _GROUP, _END_GROUP, _FIXED32 = range(6)
_REALS = {"float": (_FIXED32, "<f4", 4), "double": (_FIXED64, "<f8", 8)}


def read_wire_message(path: Path, kind: str) -> Message:
    """What a file in wire format says; raises `NotFound` or `InvalidFile`."""
    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except ValueError:
        raise InvalidFile(f"{path} is empty") from None
    except OSError as error:
        raise InvalidFile(f"{path} cannot be read: {error.strerror}") from None
    return parse_wire(memoryview(mapped), kind, str(path))


def parse_wire(content: memoryview, kind: str, file: str) -> Message:
    """The whole content as one message; raises `InvalidFile`."""
    return _Reader(content, file).message(kind, 0, len(content))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a field stands: its type on the wire, and from where to where its value goes."""

    wire: int
    start: int
    end: int
    number: int = 0


class _Reader:
    def __init__(self, content: memoryview, file: str) -> None:
        self._content, self._file = content, file
        self._fields = 0

    def message(self, kind: str, start: int, end: int) -> Message:
        message = Message(kind, self._file)
        numbers = KINDS[kind].numbers
        while start < end:
            self._count()
            tag_start = start
            tag, start = self._varint(start, end)
            place = self._place(tag & 7, start, end)
            start = place.end
            field = numbers.get(tag >> 3)
            if field is None or field.type == IGNORED:
                continue
            if field.type in _REALS and field.repeated and place.wire == _REALS[field.type][0]:
                start = self._run(message, field, tag_start, place, end)
            else:
                self._keep(message, field, place)
        return message

    def _keep(self, message: Message, field: Field, place: _Place) -> None:
        if field.type in KINDS or field.type == "string" or (field.repeated and field.type in _REALS):
            self._expect(place, _BYTES, field)
            message.add(field.name, self._long(field, place))
        elif field.type in _REALS:
            self._expect(place, _FIXED32, field)
            message.add(field.name, float(struct.unpack_from("<f", self._content, place.start)[0]))
        elif field.repeated and place.wire == _BYTES:
            start = place.start
            while start < place.end:
                self._count()
                number, start = self._varint(start, place.end)
                message.add(field.name, self._integer(field, number))
        else:
            self._expect(place, _VARINT, field)
            message.add(field.name, self._integer(field, place.number))

    def _long(self, field: Field, place: _Place) -> Any:
        if field.type in KINDS:
            return self.message(field.type, place.start, place.end)
        if field.type == "string":
            if place.end - place.start > _MOST_TEXT:
                self._refuse(f"is damaged: {field.name} is longer than a name can be")
            return bytes(self._content[place.start : place.end]).decode("utf-8", "replace")
        _, dtype, size = _REALS[field.type]
        if (place.end - place.start) % size:
            self._refuse(f"is damaged: {field.name} ends in the middle of a number")
        return np.frombuffer(self._content, dtype, (place.end - place.start) // size, place.start)

    def _run(self, message: Message, field: Field, tag_start: int, place: _Place, end: int) -> int:
        """Numbers that are not packed follow each other, each with the same tag: taken together."""
        _, dtype, size = _REALS[field.type]
        head = place.start - tag_start
        step = head + size
        whole, count = (end - tag_start) // step, 1
        while count < whole:  # looked at in growing pieces, so that short runs stay cheap
            rows = self._rows(tag_start, min(whole, 2 * count), step)
            others = np.flatnonzero((rows[count:, :head] != rows[0, :head]).any(axis=1))
            if len(others):
                count = whole = count + int(others[0])
            else:
                count = len(rows)
        values = self._rows(tag_start, count, step)[:, head:]
        message.add(field.name, np.ascontiguousarray(values).view(dtype).reshape(-1))
        return tag_start + count * step

    def _rows(self, start: int, count: int, step: int) -> npt.NDArray[np.uint8]:
        return np.frombuffer(self._content, np.uint8, count * step, start).reshape(count, step)

    def _integer(self, field: Field, number: int) -> Any:
        if field.type == "bool":
            return number != 0
        signed = number - (1 << 64) if number >> 63 else number
        if field.type in ENUMERATIONS:
            name = ENUMERATIONS[field.type].get(signed)
            return name if name is not None else self._refuse(f"is damaged: {field.name} is {signed}")
        return number & 0xFFFFFFFF if field.type == "uint" else signed

    # -- places -------------------------------------------------------------------------------------------------------

    def _place(self, wire: int, start: int, end: int) -> _Place:
        if wire == _VARINT:
            number, after = self._varint(start, end)
            return _Place(wire, start, after, number)
        if wire == _BYTES:
            length, start = self._varint(start, end)
        elif wire in (_FIXED32, _FIXED64):
            length = 4 if wire == _FIXED32 else 8
        else:
            self._refuse("is no caffemodel, or a damaged one")
        if length > end - start:
            self._refuse("is only a part of a caffemodel, or a damaged one")
        return _Place(wire, start, start + length)

    def _varint(self, start: int, end: int) -> tuple[int, int]:
        number = shift = 0
        while start < end and shift < 70:
            byte = self._content[start]
            start += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number & 0xFFFFFFFFFFFFFFFF, start
            shift += 7
        return self._refuse("is only a part of a caffemodel, or a damaged one")

    def _count(self) -> None:
        self._fields += 1
        if self._fields > MOST_FIELDS:
            self._refuse(f"holds more than {MOST_FIELDS:,} fields")

    def _expect(self, place: _Place, wire: int, field: Field) -> None:
        if place.wire != wire:
            self._refuse(f"is damaged: {field.name} is not what it should be")

    def _refuse(self, problem: str) -> NoReturn:
        raise InvalidFile(f"{self._file} {problem}")
