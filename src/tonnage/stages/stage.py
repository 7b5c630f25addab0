"""A network that was cut, as plain data: what each device runs, reads, and passes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

CONTROLLER = ""  # where inputs come from and outputs go to, among the names of devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Operations of one device that run at once, as soon as their inputs are there."""

    inputs: tuple[str, ...]  # values, from wherever they come
    weights: tuple[str, ...]  # parameters and buffers, by the names they have in the stage
    outputs: tuple[str, ...]  # values that others read
    publishes: tuple[str, ...]  # values that are final when it has run; some may be outputs of an earlier segment
    after: tuple[int, ...]  # earlier segments of this device that must have run
    level: int  # segments before it, on the longest way from the inputs
    code: tuple[Mapping[str, Any], ...] = field(hash=False)  # its operations: see `graph_code`


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What one device runs: one segment, or several where the way of the data leaves it and comes back."""

    device: str
    segments: tuple[Segment, ...]
    sources: Mapping[str, str] = field(hash=False)  # by value that it does not make itself: the device that does
    readers: Mapping[str, tuple[str, ...]] = field(hash=False)  # by value that it sends, in the order of the stages
    weights: Mapping[str, str] = field(hash=False)  # names in the network by those in the code
    written_weights: tuple[str, ...] = ()  # that change while it runs
    volatile: tuple[str, ...] = ()  # values in the memory of those: copied before they are sent
    in_order: bool = False  # a sample is finished before the next begins, as several segments use what changes

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> Stage:
        segments = tuple(_segment(each) for each in document["segments"])
        readers = {value: tuple(names) for value, names in document["readers"].items()}
        changes = {key: tuple(document[key]) for key in ("written_weights", "volatile")}
        return Stage(**{**document, **changes, "segments": segments, "readers": readers})


def _segment(document: Mapping[str, Any]) -> Segment:
    lists = {key: tuple(value) for key, value in document.items() if key != "level"}
    return Segment(level=document["level"], **lists)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """All stages, in an order in which data flows, and what joins them."""

    stages: tuple[Stage, ...]
    inputs: tuple[str, ...]  # the network's, as it takes them
    outputs: tuple[Any, ...]  # as it returns them: ("value", name), ("weight", name) or ("constant", what)
    holders: Mapping[str, tuple[str, ...]] = field(hash=False)  # devices by weight, in the order of the stages

    @property
    def links(self) -> tuple[tuple[str, str], ...]:
        """Ordered pairs of devices with values between them: each reader passes on what the next one reads as well."""
        ways = [(stage.device, *readers) for stage in self.stages for readers in self._readers(stage)]
        return tuple(dict.fromkeys(pair for way in ways for pair in pairwise(way)))

    @property
    def returns(self) -> tuple[tuple[str, str], ...]:
        """Ordered pairs of devices with gradients between them: each reader answers who made the value."""
        return tuple(
            dict.fromkeys(
                (reader, stage.device) for stage in self.stages for way in self._readers(stage) for reader in way
            )
        )

    @staticmethod
    def _readers(stage: Stage) -> list[list[str]]:
        return [[reader for reader in readers if reader != CONTROLLER] for readers in stage.readers.values()]
