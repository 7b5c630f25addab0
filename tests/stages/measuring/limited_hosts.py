"""Hosts on one machine: network namespaces around a switch, each with a rate of its own. Needs root, `ip` and `tc`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

INTERFACE = "eth"


def why_not() -> str:
    """Why there can be no such hosts here; "" if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    return f"{missing[0]} is not installed (apt-get install iproute2)" if missing else ""


def address(number: int) -> str:
    return f"10.93.0.{number + 1}"


@contextmanager
def limited_hosts(rates_bits_second: Sequence[int]) -> Iterator[list[str]]:
    """A namespace for each rate; they are gone afterwards, whatever happens."""
    prefix = f"tonnage-measure-{os.getpid()}"
    switch, names = f"{prefix}-switch", [f"{prefix}-{number}" for number in range(len(rates_bits_second))]
    try:
        _run("ip", "netns", "add", switch)
        _run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", switch, "link", "set", "bridge", "up")
        for number, (name, rate) in enumerate(zip(names, rates_bits_second, strict=True)):
            _add_host(name, number, switch)
            set_rate(name, rate)
        yield names
    finally:
        for name in [*names, switch]:
            subprocess.run(["ip", "netns", "delete", name], check=False, stderr=subprocess.DEVNULL)


def set_rate(name: str, rate_bits_second: int) -> None:
    limit = f"rate {rate_bits_second} burst 64kb limit 4mb".split()
    _run("tc", "-n", name, "qdisc", "replace", "dev", INTERFACE, "root", "tbf", *limit)


def _add_host(name: str, number: int, switch: str) -> None:
    port = f"port{number}"
    _run("ip", "netns", "add", name)
    _run("ip", "-n", name, "link", "set", "lo", "up")
    _run("ip", "link", "add", INTERFACE, "netns", name, "type", "veth", "peer", "name", port, "netns", switch)
    _run("ip", "-n", name, "address", "add", f"{address(number)}/24", "dev", INTERFACE)
    _run("ip", "-n", name, "link", "set", INTERFACE, "up")
    _run("ip", "-n", switch, "link", "set", port, "master", "bridge", "up")


def _run(*words: str) -> None:
    subprocess.run(words, check=True)
