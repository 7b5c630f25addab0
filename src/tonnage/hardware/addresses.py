"""Where a node is reached: `box3.lan`, `10.0.0.7:8643`, `[fd00::7]:8643`, and `10.0.0.[11-14]` for several nodes."""

import re
from ipaddress import IPv6Address

_RANGE = re.compile(r"\[(\d{1,6})-(\d{1,6})\]")
_HOST = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(\.(?!-)[A-Za-z0-9_-]{1,63})*\.?")
_WANTED = "must be a host name or IP address, with or without a port, such as 10.0.0.7 or box3.lan:8643"


def split_address(address: str) -> tuple[str, int | None]:
    """Host, and the port where one is given; `ValueError` with one sentence for what is no address."""
    bracketed = re.fullmatch(r"\[([^\[\]]+)\](?::(\d{1,5}))?", address)
    plain = re.fullmatch(r"([^:\[\]]+)(?::(\d{1,5}))?", address)
    if bracketed and _is_ipv6(bracketed[1]):
        host, port = bracketed[1], bracketed[2]
    elif plain and _HOST.fullmatch(plain[1]):
        host, port = plain[1], plain[2]
    elif _is_ipv6(address):
        return address, None
    else:
        raise ValueError(f"{_WANTED}, not {address!r:.60}")
    if port is not None and not 0 < int(port) < 65536:
        raise ValueError(f"{port} is no port: they go from 1 to 65535")
    return host, None if port is None else int(port)


def expand_address(pattern: str, count: int) -> list[str]:
    """One address for each of `count` nodes; a range such as `[11-14]` stands for its numbers, zeros in front kept."""
    found = _RANGE.findall(pattern)
    if not found and count == 1:
        return [pattern]
    if not found:
        raise ValueError(f"needs {count} addresses: a list of them, or a range such as 10.0.0.[1-{count}]")
    if len(found) > 1:
        raise ValueError(f"has {len(found)} ranges; give one, or a list")
    first, last = found[0]
    numbers = range(int(first), int(last) + 1)
    if len(numbers) != count:
        raise ValueError(f"[{first}-{last}] stands for {len(numbers)} addresses, and there are {count} nodes")
    return [_RANGE.sub(f"{number:0{len(first)}d}", pattern) for number in numbers]


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True
