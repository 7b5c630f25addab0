"""Asks the agent of one node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from tonnage.errors import Unreachable
from tonnage.stages.agent_wire import WAIT_SECONDS, answer, asked
from tonnage.stages.machine import Pace


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenGpu:
    name: str
    memory_bytes: int
    available_bytes: int
    load: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenNode:
    """What an agent says of its node."""

    cores: int
    memory_bytes: int
    available_bytes: int
    load: float
    gpus: tuple[SeenGpu, ...]
    paces: tuple[Pace, ...]
    best_pace: Pace


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTransfer:
    """One transfer from an agent to another, with the round trips before it."""

    bytes_second: float
    round_trip_seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class AgentClient:
    """One agent. Raises `Unreachable` where nobody answers, `Refused` where the agent says no."""

    address: str
    token: bytes

    def look(self, paces: int) -> SeenNode:
        with asked(self.address, self.token, {"ask": "look", "paces": paces}, WAIT_SECONDS + paces) as connection:
            found = answer(connection)
        try:
            return _seen_node(found)
        except (KeyError, TypeError, ValueError):
            raise self._strange() from None

    def send(self, target: str, seconds: float, echoes: int) -> SeenTransfer:
        """Lets it send to the agent at `target`."""
        question = {"ask": "send", "to": target, "seconds": seconds, "echoes": echoes}
        with asked(self.address, self.token, question, 4 * WAIT_SECONDS + seconds) as connection:
            found = answer(connection)
        try:
            rate = _positive(found, "nbytes") / _positive(found, "seconds")
            trips = tuple(float(each) for each in found["round_trip_seconds"])
        except (KeyError, TypeError, ValueError):
            raise self._strange() from None
        return SeenTransfer(bytes_second=rate, round_trip_seconds=trips)

    def _strange(self) -> Unreachable:
        return Unreachable(f"the agent at {self.address} answers strangely", "is it of this version of Tonnage?")


def _seen_node(found: Mapping[str, Any]) -> SeenNode:
    return SeenNode(
        cores=int(_positive(found, "cores")),
        memory_bytes=int(_positive(found, "memory_bytes")),
        available_bytes=int(found["available_bytes"]),
        load=min(max(float(found["load"]), 0.0), 1.0),
        gpus=tuple(_seen_gpu(gpu) for gpu in found["gpus"]),
        paces=tuple(_pace(pace) for pace in found["paces"]),
        best_pace=_pace(found["best_pace"]),
    )


def _seen_gpu(found: Mapping[str, Any]) -> SeenGpu:
    load = found["load"]
    return SeenGpu(
        name=str(found["name"]),
        memory_bytes=int(_positive(found, "memory_bytes")),
        available_bytes=int(found["available_bytes"]),
        load=None if load is None else min(max(float(load), 0.0), 1.0),
    )


def _pace(found: Mapping[str, Any]) -> Pace:
    return Pace(flops_second=_positive(found, "flops_second"), copy_bytes_second=_positive(found, "copy_bytes_second"))


def _positive(found: Mapping[str, Any], name: str) -> float:
    value = float(found[name])
    if not isfinite(value) or value <= 0:
        raise ValueError(name)
    return value
