"""The file of runtime statistics, JSON or YAML; every complaint is one sentence with file, line and field."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_core import PydanticCustomError

from tonnage.hardware.cluster_models import Section
from tonnage.hardware.yaml_errors import Problem, invalid_file
from tonnage.hardware.yaml_lines import Document, Location, read_document
from tonnage.split.observations import LinkStatistics, PlaceStatistics, Spread, Statistics

VERSION = 1
_TIME = "must be a time with its zone, such as 2026-11-16T10:00:00Z, or seconds since 1970"


def _seconds_since_1970(given: object) -> float:
    """YAML reads an unquoted time by itself; JSON and quoted YAML have it as text."""
    moment = given
    if isinstance(given, str):
        try:
            moment = datetime.fromisoformat(given)
        except ValueError:
            moment = None
    if isinstance(moment, datetime) and moment.tzinfo is not None:
        return moment.timestamp()
    if isinstance(moment, int | float) and not isinstance(moment, bool) and math.isfinite(moment) and moment >= 0:
        return float(moment)
    raise PydanticCustomError("time", "{text}, not {given}", {"text": _TIME, "given": f"{str(given)!r:.40}"})


def _number(given: object) -> object:
    """`1e-05` is a number in JSON, and text in YAML 1.1, which wants a dot in it."""
    is_number = isinstance(given, str) and re.fullmatch(r"\d+(\.\d+)?[eE][+-]?\d+", given)
    return float(str(given)) if is_number else given


Moment = Annotated[float, BeforeValidator(_seconds_since_1970)]
Positive = Annotated[float, BeforeValidator(_number), Field(gt=0, allow_inf_nan=False)]


class SpreadSection(Section):
    """Several observations."""

    median: Positive = Field(description="Half of the observations were as good.")
    p95: Positive = Field(description="95 % of the observations were as good.")

    @property
    def spread(self) -> Spread:
        return Spread(median=self.median, p95=self.p95)


class NodeSection(Section):
    """What was observed of a node's processors or of one GPU."""

    name: str = Field(description="`box-0` for processors and memory of a node, `box-0/gpu3` for a GPU.")
    taken_at: Moment | None = Field(None, description="When; the file's where it is left out.")
    valid_seconds: Positive | None = Field(None, description="For how long; the file's where it is left out.")
    lost: bool = Field(False, description="It does not answer any more.")
    load: Annotated[float, BeforeValidator(_number)] | None = Field(
        None, ge=0, le=1, allow_inf_nan=False, description="Part of it that is in use."
    )
    available_bytes: int | None = Field(None, ge=0, description="Memory that is free.")
    speed: SpreadSection | None = Field(None, description="Times the nominal one, load included.")


class LinkSection(Section):
    """What was observed between two nodes or GPUs, in one direction."""

    source: str = Field(alias="from", description="Where data leaves.")
    target: str = Field(alias="to", description="Where it arrives.")
    taken_at: Moment | None = Field(None, description="When; the file's where it is left out.")
    valid_seconds: Positive | None = Field(None, description="For how long; the file's where it is left out.")
    lost: bool = Field(False, description="Nothing gets through any more.")
    bandwidth_bytes_second: SpreadSection | None = Field(None, description="Of one message that is large.")
    latency_seconds: SpreadSection | None = Field(None, description="Of one message that is small.")


class StatisticsFile(Section):
    """Runtime statistics of a cluster."""

    version: Literal[1] = Field(description="Of this format.")
    taken_at: Moment | None = Field(None, description="When, for entries that do not say.")
    valid_seconds: Positive | None = Field(None, description="For how long, for entries that do not say.")
    nodes: list[NodeSection] = Field([], description="Nodes and GPUs.")
    links: list[LinkSection] = Field([], description="Links.")


def read_statistics(path: str | Path) -> Statistics:
    """What a file tells; raises `NotFound` or `InvalidFile`."""
    return statistics_in(read_document(path))


def statistics_in(document: Document) -> Statistics:
    """The same of a document that is read already; raises `InvalidFile`."""
    try:
        return _statistics(StatisticsFile.model_validate(document.value))
    except ValidationError as error:
        raise invalid_file(document, error, (StatisticsFile, NodeSection, LinkSection, SpreadSection)) from error
    except Problem as problem:
        raise document.error(problem.location, problem.text) from problem


def statistics_text(statistics: Statistics) -> str:
    """The file's content, as JSON with a line for each entry."""
    nodes, links = map(_node_record, statistics.places), map(_link_record, statistics.links)
    lines = [f'"version": {VERSION}', _lines("nodes", nodes), _lines("links", links)]
    return "{\n  " + ",\n  ".join(lines) + "\n}\n"


def _lines(name: str, records: Any) -> str:
    entries = ",\n    ".join(json.dumps(record) for record in records)
    return f'"{name}": [\n    {entries}\n  ]' if entries else f'"{name}": []'


# -- reading --------------------------------------------------------------------------------------------------------------


def _statistics(file: StatisticsFile) -> Statistics:
    return Statistics(
        places=tuple(_place(file, entry, ("nodes", index)) for index, entry in enumerate(file.nodes)),
        links=tuple(_link(file, entry, ("links", index)) for index, entry in enumerate(file.links)),
    )


def _place(file: StatisticsFile, entry: NodeSection, at: Location) -> PlaceStatistics:
    return PlaceStatistics(
        place=entry.name,
        **_common(file, entry, at),
        load=entry.load,
        available_bytes=entry.available_bytes,
        speed=_spread(entry.speed, (*at, "speed")),
    )


def _link(file: StatisticsFile, entry: LinkSection, at: Location) -> LinkStatistics:
    if entry.source == entry.target:
        raise Problem((*at, "to"), f"{entry.target!r} is where it comes from")
    return LinkStatistics(
        source=entry.source,
        target=entry.target,
        **_common(file, entry, at),
        bandwidth_bytes_second=_spread(entry.bandwidth_bytes_second, (*at, "bandwidth_bytes_second")),
        latency_seconds=_spread(entry.latency_seconds, (*at, "latency_seconds"), longer_is_worse=True),
    )


def _common(file: StatisticsFile, entry: NodeSection | LinkSection, at: Location) -> dict[str, Any]:
    taken_at = file.taken_at if entry.taken_at is None else entry.taken_at
    valid_seconds = entry.valid_seconds or file.valid_seconds
    if taken_at is None:
        raise Problem((*at, "taken_at"), "is missing, here and at the top of the file")
    if valid_seconds is None:
        raise Problem((*at, "valid_seconds"), "is missing, here and at the top of the file")
    return {"taken_at": taken_at, "valid_seconds": valid_seconds, "is_lost": entry.lost}


def _spread(section: SpreadSection | None, at: Location, *, longer_is_worse: bool = False) -> Spread | None:
    if section is None:
        return None
    worse, better = (section.p95, section.median) if longer_is_worse else (section.median, section.p95)
    if worse < better:
        side = "less" if longer_is_worse else "more"
        raise Problem((*at, "p95"), f"is {side} than the median; it is the figure that 95 % of the observations reach")
    return section.spread


# -- writing --------------------------------------------------------------------------------------------------------------


def _node_record(entry: PlaceStatistics) -> dict[str, Any]:
    return {"name": entry.place} | _common_record(entry) | _figures(entry)


def _link_record(entry: LinkStatistics) -> dict[str, Any]:
    return {"from": entry.source, "to": entry.target} | _common_record(entry) | _figures(entry)


def _common_record(entry: PlaceStatistics | LinkStatistics) -> dict[str, Any]:
    moment = datetime.fromtimestamp(entry.taken_at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"taken_at": moment, "valid_seconds": entry.valid_seconds} | ({"lost": True} if entry.is_lost else {})


def _figures(entry: PlaceStatistics | LinkStatistics) -> dict[str, Any]:
    found = {name: getattr(entry, name) for name in entry.FIGURES}
    return {name: _plain(value) for name, value in found.items() if value is not None}


def _plain(value: object) -> object:
    return {"median": value.median, "p95": value.p95} if isinstance(value, Spread) else value
