"""The datatypes of the protocol: their sizes, their numpy kinds, and how strings lie in a buffer.

A tensor of the protocol is its bytes, little-endian and row by row. Strings (BYTES) are each preceded by their length
in four bytes. BF16 has no numpy kind: where numbers are needed they are taken as FP32.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tonnage.serve.errors import InvalidRequest

BYTES = "BYTES"
BF16 = "BF16"
_LENGTH = struct.Struct("<I")
# Bytes of an element, and the numpy kind that a tensor is in an instance.
_KINDS: dict[str, tuple[int, str]] = {
    "BOOL": (1, "?"), "UINT8": (1, "u1"), "UINT16": (2, "<u2"), "UINT32": (4, "<u4"), "UINT64": (8, "<u8"),
    "INT8": (1, "i1"), "INT16": (2, "<i2"), "INT32": (4, "<i4"), "INT64": (8, "<i8"),
    "FP16": (2, "<f2"), "FP32": (4, "<f4"), "FP64": (8, "<f8"), BF16: (2, "<u2"), BYTES: (0, "O"),
}  # fmt: skip
DATATYPES = tuple(_KINDS)
DTYPES: dict[str, np.dtype[Any]] = {name: np.dtype(kind) for name, (_, kind) in _KINDS.items()}
ITEM_BYTES: dict[str, int] = {name: size for name, (size, _) in _KINDS.items()}
_NAMES = {np.dtype(kind): name for name, (_, kind) in _KINDS.items() if name not in (BF16, BYTES)}


@dataclass(slots=True)  # not frozen: that would make each of very many twice as slow to make
class Tensor:
    """Bytes with a shape. `data` may be a view into what was received. Nobody changes one."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes | memoryview

    @property
    def elements(self) -> int:
        return prod(self.shape)


def datatype_of(dtype: np.dtype[Any]) -> str:
    """The protocol's word for a numpy kind; strings and objects are BYTES."""
    if dtype.kind in "OSU":
        return BYTES
    try:
        return _NAMES[dtype.newbyteorder("<")]
    except KeyError:
        raise InvalidRequest(f"the protocol has no datatype for numpy's {dtype}") from None


def as_array(datatype: str, shape: tuple[int, ...], data: bytes | memoryview) -> npt.NDArray[Any]:
    """A view of the bytes where that is possible; BF16 becomes FP32, strings become objects of type bytes."""
    if datatype == BYTES:
        array = np.empty(prod(shape), dtype=object)
        array[:] = list(strings(data))
        return array.reshape(shape)
    array = np.frombuffer(data, DTYPES[datatype]).reshape(shape)
    return (array.astype("<u4") << 16).view("<f4") if datatype == BF16 else array


def as_bytes(array: npt.NDArray[Any], datatype: str = "") -> bytes:
    """The bytes of an array, as the given datatype."""
    datatype = datatype or datatype_of(array.dtype)
    if datatype == BYTES:
        return join_strings(_encoded(value) for value in array.ravel().tolist())
    if datatype == BF16:
        return rounded_to_bf16(array.astype("<f4")).tobytes()
    return np.ascontiguousarray(array, DTYPES[datatype]).tobytes()


def rounded_to_bf16(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """FP32 numbers as the upper half of their bits, to the nearest, ties to even; what is no number stays none."""
    bits = np.ascontiguousarray(array, "<f4").view("<u4")
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(array), (bits >> 16) | 0x40, rounded).astype("<u2")


def strings(data: bytes | memoryview) -> Iterator[bytes]:
    """The strings of a BYTES tensor; its lengths must have been checked by `count_strings`."""
    place, end = 0, len(data)
    while place < end:
        (length,) = _LENGTH.unpack_from(data, place)
        place += 4
        yield bytes(data[place : place + length])
        place += length


def join_strings(values: Iterable[bytes]) -> bytes:
    return b"".join(part for value in values for part in (_LENGTH.pack(len(value)), value))


def count_strings(data: bytes | memoryview) -> int:
    """How many strings a buffer holds; -1 where a length points outside of it."""
    place, end, count = 0, len(data), 0
    while place + 4 <= end:
        place += 4 + _LENGTH.unpack_from(data, place)[0]
        count += 1
    return count if place == end else -1


def rows_bytes(datatype: str, shape: tuple[int, ...], data: memoryview, rows: Iterable[int]) -> list[memoryview]:
    """A tensor cut along its first axis into parts of so many rows each."""
    parts, place = [], 0
    if datatype != BYTES:
        size = len(data) // shape[0] if shape[0] else 0
        for count in rows:
            parts.append(data[place : place + count * size])
            place += count * size
        return parts
    row_strings = prod(shape[1:])
    for count in rows:
        start = place
        for _ in range(count * row_strings):
            place += 4 + _LENGTH.unpack_from(data, place)[0]
        parts.append(data[start:place])
    return parts


def _encoded(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
