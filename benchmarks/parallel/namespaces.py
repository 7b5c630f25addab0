"""Hosts on one machine: network namespaces around a switch, each with a link of limited rate. Needs root, `ip` and `tc`."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

SUBNET = "10.91.0"
INTERFACE = "eth"


@contextmanager
def hosts(count: int, rate_bits_second: int) -> Iterator[list[str]]:
    """So many namespaces; each sends to all others at that rate. They are gone afterwards, whatever happens."""
    prefix = f"tonnage-{os.getpid()}"
    switch, names = f"{prefix}-switch", [f"{prefix}-{number}" for number in range(count)]
    try:
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "up")
        for number, name in enumerate(names):
            _host(name, number, switch, rate_bits_second)
        yield names
    finally:
        for name in [*names, switch]:
            subprocess.run(["ip", "netns", "delete", name], check=False, stderr=subprocess.DEVNULL)


def address(number: int) -> str:
    return f"{SUBNET}.{number + 1}"


def _host(name: str, number: int, switch: str, rate_bits_second: int) -> None:
    port = f"port{number}"
    _ip("netns", "add", name)
    _ip("-n", name, "link", "set", "lo", "up")
    _ip("link", "add", INTERFACE, "netns", name, "type", "veth", "peer", "name", port, "netns", switch)
    _ip("-n", name, "address", "add", f"{address(number)}/24", "dev", INTERFACE)
    _ip("-n", name, "link", "set", INTERFACE, "up")
    _ip("-n", switch, "link", "set", port, "master", "bridge", "up")
    limit = f"rate {rate_bits_second} burst 64kb limit 4mb".split()
    subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", INTERFACE, "root", "tbf", *limit], check=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
