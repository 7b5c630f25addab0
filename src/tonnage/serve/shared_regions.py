"""Regions of system shared memory that clients have registered: tensors are read from them and written into them.

They are read and written like files. A client may shorten its memory at any time: who has it mapped would be killed
by that.
"""

from __future__ import annotations

import os
import weakref
from dataclasses import dataclass
from typing import Any

from tonnage.serve.datatypes import Tensor
from tonnage.serve.errors import InvalidRequest, UnknownThing


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a region."""

    region: str
    offset: int
    size: int

    @classmethod
    def of(cls, parameters: dict[str, Any], where: str) -> Span | None:
        """As the parameters of a tensor tell it."""
        if "shared_memory_region" not in parameters:
            return None
        region = parameters["shared_memory_region"]
        offset, size = parameters.get("shared_memory_offset", 0), parameters.get("shared_memory_byte_size")
        if type(region) is not str or type(offset) is not int or type(size) is not int or offset < 0 or size < 0:
            raise InvalidRequest(
                f"{where}.parameters needs shared_memory_region, shared_memory_byte_size and perhaps shared_memory_offset"
            )
        return cls(region, offset, size)


@dataclass(frozen=True, eq=False)
class Region:
    name: str
    key: str
    offset: int
    size: int
    descriptor: int

    def __post_init__(self) -> None:
        weakref.finalize(self, os.close, self.descriptor)  # requests that still use it keep it

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "key": self.key, "offset": self.offset, "byte_size": self.size}


class SharedRegions:
    """By name."""

    def __init__(self) -> None:
        self._regions: dict[str, Region] = {}

    def register(self, name: str, key: str, offset: int, size: int) -> None:
        if name in self._regions:
            raise InvalidRequest(f"the shared memory region {name!r} is registered already")
        if "/" in key.removeprefix("/") or key.removeprefix("/") in ("", ".", ".."):
            raise InvalidRequest(f"{key!r} is no key of system shared memory")
        if size <= 0 or offset < 0:
            raise InvalidRequest(f"the region {name!r} has an impossible size or offset: {size} bytes at {offset}")
        self._regions[name] = Region(name, key, offset, size, _opened(name, key, offset, size))

    def unregister(self, name: str = "") -> None:
        """One, or all. An unknown one is no mistake: it is gone."""
        for each in [name] if name else list(self._regions):
            self._regions.pop(each, None)

    def status(self, name: str = "") -> list[Region]:
        if name and name not in self._regions:
            raise UnknownThing(f"no shared memory region {name!r} is registered")
        return [self._regions[name]] if name else list(self._regions.values())

    def read(self, span: Span) -> bytes:
        region = self.check(span)
        data = os.pread(region.descriptor, span.size, region.offset + span.offset)
        if len(data) < span.size:
            raise InvalidRequest(f"the shared memory of region {span.region!r} is shorter than when it was registered")
        return data

    def check(self, span: Span) -> Region:
        region = self._regions.get(span.region)
        if region is None:
            raise UnknownThing(f"no shared memory region {span.region!r} is registered")
        if span.offset + span.size > region.size:
            raise InvalidRequest(
                f"{span.size} bytes at {span.offset} are outside of the region {span.region!r}, which has {region.size}"
            )
        return region

    def write(self, span: Span, tensor: Tensor) -> None:
        size = len(tensor.data)
        if size > span.size:
            raise InvalidRequest(
                f"output {tensor.name} has {size} bytes; {span.size} were kept for it in {span.region!r}"
            )
        region = self.check(span)
        os.pwrite(region.descriptor, tensor.data, region.offset + span.offset)


def _opened(name: str, key: str, offset: int, size: int) -> int:
    path = os.path.join("/dev/shm", key.removeprefix("/"))
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise InvalidRequest(
            f"the shared memory {key!r} of region {name!r} cannot be opened: {error.strerror}"
        ) from None
    if os.fstat(descriptor).st_size < offset + size:
        os.close(descriptor)
        raise InvalidRequest(f"the shared memory {key!r} is smaller than the {offset + size} bytes of region {name!r}")
    return descriptor
