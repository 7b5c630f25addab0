"""Several hosts on one machine, for tests and benchmarks: network namespaces with links whose rate is limited.

Needs root, `ip` and `tc`. The hosts are gone afterwards, whatever happens. A node's own speed is emulated elsewhere: see
`StageHost.pace`. TCP carries about 0.955 of a link's rate as payload.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count

from tonnage.errors import MissingDependency, TonnageError

SUBNET = "10.91.0"
INTERFACE = "eth"  # of a host around a switch
_BURST_SECONDS, _LEAST_BURST_BYTES = 0.002, 64 << 10
_QUEUE_BYTES = 4 << 20
_rigs = count()


@dataclass(frozen=True, slots=True)
class Port:
    """One end of a link, where what leaves is limited."""

    namespace: str
    interface: str


@dataclass
class Rig:
    """Hosts by name, and the ports that limit what they send to each other."""

    addresses: dict[str, str] = field(default_factory=dict)
    namespaces: dict[str, str] = field(default_factory=dict)
    _ports: dict[tuple[str, str], Port] = field(default_factory=dict)  # from a host to another, or "" for all

    def prefix(self, host: str) -> tuple[str, ...]:
        """Words before a command that shall run there."""
        return "ip", "netns", "exec", self.namespaces[host]

    def set_rate(self, source: str, target: str, rate_bits_second: float) -> None:
        """Of one direction, while it is in use. Around a switch, "" is everybody."""
        _limit(self._ports[source, target], rate_bits_second, "change")


def reason_against() -> str:
    """Why there can be no namespaces here; "" if there can."""
    missing = [command for command in ("ip", "tc") if shutil.which(command) is None]
    if missing:
        return f"{' and '.join(missing)} is not installed (iproute2)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    made = subprocess.run(["ip", "netns", "add", name := f"tonnage-{os.getpid()}-try"], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
    return made.stderr.strip() if made.returncode else ""


@contextmanager
def switched_hosts(rates_bits_second: Mapping[str, float]) -> Iterator[Rig]:
    """Hosts around a switch: all that a host sends shares its rate, and all that it gets as well."""
    with _rig(list(rates_bits_second), extra="switch") as (rig, prefix):
        switch = f"{prefix}-switch"
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "up")
        for number, (host, rate) in enumerate(rates_bits_second.items()):
            ends = Port(rig.namespaces[host], INTERFACE), Port(switch, f"port{number}")
            _join(*ends)
            _ip("-n", ends[0].namespace, "address", "add", f"{rig.addresses[host]}/24", "dev", INTERFACE)
            _ip("-n", switch, "link", "set", ends[1].interface, "master", "bridge")
            rig._ports |= {(host, ""): ends[0], ("", host): ends[1]}
            for end in ends:
                _limit(end, rate, "add")
        yield rig


@contextmanager
def linked_hosts(hosts: Sequence[str], rates_bits_second: Mapping[tuple[str, str], float]) -> Iterator[Rig]:
    """A link of its own for each pair that has a rate, and no other way; each direction has the rate of its pair."""
    with _rig(hosts) as (rig, _):
        pairs = dict.fromkeys((min(pair), max(pair)) for pair in rates_bits_second)
        for number, (one, other) in enumerate(pairs):
            ends = {name: Port(rig.namespaces[name], f"link{number}") for name in (one, other)}
            _join(ends[one], ends[other])
            for source, target in ((one, other), (other, one)):
                rate = rates_bits_second.get((source, target), rates_bits_second.get((target, source), 0.0))
                _route(rig, ends[source], source, target)
                _limit(ends[source], rate, "add")
                rig._ports[source, target] = ends[source]
        yield rig


# -- inside ---------------------------------------------------------------------------------------------------------------


@contextmanager
def _rig(hosts: Sequence[str], extra: str = "") -> Iterator[tuple[Rig, str]]:
    if reason := reason_against():
        raise MissingDependency(f"several hosts on one machine are not possible here: {reason}")
    prefix = f"tonnage-{os.getpid()}-{next(_rigs)}"
    rig = Rig(
        addresses={host: f"{SUBNET}.{number + 1}" for number, host in enumerate(hosts)},
        namespaces={host: f"{prefix}-{number}" for number, host in enumerate(hosts)},
    )
    names = [*rig.namespaces.values(), *([f"{prefix}-{extra}"] if extra else [])]
    try:
        for name in names:
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        yield rig, prefix
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def _join(one: Port, other: Port) -> None:
    ends = ["type", "veth", "peer", "name", other.interface, "netns", other.namespace]
    _ip("link", "add", one.interface, "netns", one.namespace, *ends)
    for end in (one, other):
        _ip("-n", end.namespace, "link", "set", end.interface, "up")


def _route(rig: Rig, port: Port, source: str, target: str) -> None:
    """A host has one address, on each of its links; which link leads where is told by a route to the other's address."""
    _ip("-n", port.namespace, "address", "add", f"{rig.addresses[source]}/32", "dev", port.interface)
    way = ["dev", port.interface, "src", rig.addresses[source]]
    _ip("-n", port.namespace, "route", "add", f"{rig.addresses[target]}/32", *way)


def _limit(port: Port, rate_bits_second: float, verb: str) -> None:
    burst = max(_LEAST_BURST_BYTES, round(rate_bits_second / 8 * _BURST_SECONDS))
    limit = f"rate {round(rate_bits_second)} burst {burst} limit {_QUEUE_BYTES}".split()
    _run("tc", "-n", port.namespace, "qdisc", verb, "dev", port.interface, "root", "tbf", *limit)


def _ip(*words: str) -> None:
    _run("ip", *words)


def _run(*command: str) -> None:
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode:
        raise TonnageError(f"{' '.join(command)} failed: {made.stderr.strip()}")
