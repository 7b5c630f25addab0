"""Sizes, rates and times as people write them in files: `2 TiB`, `400 Gbit/s`, `2 us`. The unit is always asked for."""

import math
import re

_NUMBER = r"\d+(?:\.\d+)?"
_PREFIXES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_DURATIONS = {
    1: ("s", "second", "seconds"),
    60: ("min", "minute", "minutes"),
    3600: ("h", "hour", "hours"),
    86400: ("d", "day", "days"),
}
_DURATION_FACTORS = {name: factor for factor, names in _DURATIONS.items() for name in names}
_DURATION_PART = re.compile(rf"({_NUMBER}) ?([a-z]+) ?")

BYTES_PATTERN = rf"^{_NUMBER} ?([KMGT]i?)?B$"
RATE_PATTERN = rf"^{_NUMBER} ?([KMGT]bit/s|[KMGT]i?B/s)$"
SECONDS_PATTERN = rf"^{_NUMBER} ?(ns|us|ms|s)$"


def parse_bytes(text: object) -> int:
    """`2 TiB` as bytes; `ValueError` with one sentence for anything else."""
    number, unit = _split(text, BYTES_PATTERN, "a size with its unit, such as 512 GiB")
    return round(number * _factor(unit.removesuffix("B")))


def parse_rate(text: object) -> int:
    """`400 Gbit/s` or `50 GB/s` as bytes per second."""
    number, unit = _split(text, RATE_PATTERN, "a rate with its unit, such as 400 Gbit/s or 50 GB/s")
    if unit.endswith("bit/s"):
        return round(number * _factor(unit.removesuffix("bit/s")) / 8)
    return round(number * _factor(unit.removesuffix("B/s")))


def parse_seconds(text: object) -> float:
    """`2 us` as seconds."""
    number, unit = _split(text, SECONDS_PATTERN, "a time with its unit, such as 2 us")
    return number * _SECONDS[unit]


def parse_duration(text: object) -> float:
    """`10 min`, `1.5 days` or `1d 6h` as seconds: for times that people wait."""
    parts = _DURATION_PART.findall(text) if isinstance(text, str) else []
    factors = [_DURATION_FACTORS.get(unit, 0) for _, unit in parts]
    is_whole = isinstance(text, str) and _DURATION_PART.sub("", text) == "" and not text.endswith(" ")
    if not parts or not is_whole or 0 in factors or len(set(factors)) < len(factors):
        raise ValueError(f"must be a time with its unit, such as 90 s, 10 min, 1.5 h or 1d 6h, not {text!r:.40}")
    seconds = sum(float(number) * factor for (number, _), factor in zip(parts, factors, strict=True))
    if not math.isfinite(seconds):
        raise ValueError("must be a time that ends")
    return seconds


def format_rate(bytes_second: float) -> str:
    """As `parse_rate` reads it, in four digits: `381.9 Mbit/s`."""
    bits = max(bytes_second * 8, 1.0)
    prefix = next(name for name in ("T", "G", "M", "K") if bits >= _PREFIXES[name] or name == "K")
    return f"{_four_digits(bits / _PREFIXES[prefix])} {prefix}bit/s"


def format_seconds(seconds: float) -> str:
    """As `parse_seconds` reads it, in four digits: `87.31 us`."""
    unit = next(name for name in ("s", "ms", "us", "ns") if seconds >= _SECONDS[name] or name == "ns")
    return f"{_four_digits(seconds / _SECONDS[unit])} {unit}"


def _four_digits(number: float) -> str:
    return f"{number:.{max(3 - len(str(int(number))) + 1, 0)}f}"


def _split(text: object, pattern: str, wanted: str) -> tuple[float, str]:
    if not isinstance(text, str) or not re.match(pattern, text):
        raise ValueError(f"must be {wanted}, not {text!r:.40}")
    number = re.match(_NUMBER, text)
    assert number is not None  # every pattern starts with it
    return float(number.group()), text[number.end() :].strip()


def _factor(prefix: str) -> int:
    return _BINARY[prefix] if prefix in _BINARY else _PREFIXES[prefix]
