"""Reads the allocator settings that a user gives PyTorch in PYTORCH_CUDA_ALLOC_CONF or PYTORCH_ALLOC_CONF."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tonnage.errors import UsageError
from tonnage.units import MIB

MINIMUM_BLOCK_BYTES = 512  # every size is a multiple of it
LARGE_SEGMENT_BYTES = 20 * MIB
DIVISION_INTERVALS = 16  # the first covers everything below 2 MiB, the last 32 GiB and above

# Settings of PyTorch 2.11 to 2.13 that change neither where a block lies nor how much is reserved, as do all that
# begin with "pinned_": those are about host memory.
HARMLESS = {
    "expandable_segments_handle_type",
    "graph_capture_record_stream_reuse",
    "release_lock_on_cudamalloc",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorSettings:
    """What can be set about PyTorch's caching allocator, as far as it changes memory. Defaults are PyTorch's."""

    expandable_segments: bool = False
    max_split_bytes: int | None = None
    max_non_split_rounding_bytes: int = LARGE_SEGMENT_BYTES
    roundup_power2_divisions: tuple[int, ...] = ()  # one number for each interval; empty: plain rounding to 512 B
    garbage_collection_threshold: float = 0.0
    large_segment_bytes: int = LARGE_SEGMENT_BYTES
    memory_fraction: float = 1.0


def parse_settings(text: str) -> AllocatorSettings:
    """`expandable_segments:True,max_split_size_mb:128` as settings; raises `UsageError` with the part it cannot use."""
    values = dict(_pairs(text))
    segment = _megabytes(values, "large_segment_size_mb", LARGE_SEGMENT_BYTES, least=11 * MIB)
    _check_others(values)
    return AllocatorSettings(
        expandable_segments=_flag(values, "expandable_segments"),
        max_split_bytes=_megabytes(values, "max_split_size_mb", 0, least=segment) or None,
        max_non_split_rounding_bytes=_megabytes(values, "max_non_split_rounding_mb", segment, least=segment),
        roundup_power2_divisions=_divisions(values.pop("roundup_power2_divisions", "")),
        garbage_collection_threshold=_fraction(values, "garbage_collection_threshold", 0.0),
        large_segment_bytes=segment,
        memory_fraction=_fraction(values, "per_process_memory_fraction", 1.0),
    )


def round_up(requested_bytes: int, divisions: tuple[int, ...]) -> int:
    """The next step between two powers of two, where `divisions` says in how many steps each interval is cut."""
    bits = requested_bytes.bit_length()
    steps = divisions[min(max(0, bits - 21), len(divisions) - 1)]
    step = (1 << bits - 1) // steps if steps > 1 and requested_bytes > MINIMUM_BLOCK_BYTES * steps else 0
    step = step or MINIMUM_BLOCK_BYTES
    return -(-requested_bytes // step) * step


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    compact = "".join(text.split())
    for part in re.split(r",(?![^\[]*\])", compact) if compact else []:
        key, colon, value = part.partition(":")
        if not (key and colon and value) or value.count("[") != value.count("]"):
            raise UsageError(f"allocator setting {part!r} is not of the form key:value", "write max_split_size_mb:128")
        yield key, value


def _check_others(values: dict[str, str]) -> None:
    """Refuses what the simulation does not know, rather than ignoring it and giving a wrong number."""
    if values.get("backend", "native") != "native":
        raise UsageError(f"allocator backend {values['backend']!r} cannot be simulated", "use backend:native")
    if _flag(values, "throw_on_cudamalloc_oom"):
        raise UsageError("throw_on_cudamalloc_oom:True cannot be simulated", "leave it out")
    known = {"backend", "throw_on_cudamalloc_oom", "expandable_segments", "large_segment_size_mb", *HARMLESS}
    known |= {"max_split_size_mb", "max_non_split_rounding_mb", "roundup_power2_divisions"}
    known |= {"garbage_collection_threshold", "per_process_memory_fraction"}
    unknown = sorted(key for key in values.keys() - known if not key.startswith("pinned_"))
    if unknown:
        raise UsageError(f"unknown allocator setting {unknown[0]!r}", f"known are {', '.join(sorted(known))}")


def _flag(values: dict[str, str], key: str) -> bool:
    value = values.get(key, "False")
    if value not in ("True", "False"):
        raise UsageError(f"{key}:{value} should be {key}:True or {key}:False")
    return value == "True"


def _whole(key: str, value: str) -> int:
    if not value.isascii() or not value.isdigit():
        raise UsageError(f"{key}:{value} should hold a whole number")
    return int(value)


def _megabytes(values: dict[str, str], key: str, default: int, *, least: int) -> int:
    if key not in values:
        return default
    size = _whole(key, values[key]) * MIB
    if size < least:
        raise UsageError(f"{key}:{values[key]} is too small", f"PyTorch accepts {least // MIB} and above")
    return size


def _fraction(values: dict[str, str], key: str, default: float) -> float:
    if key not in values:
        return default
    try:
        number = float(values[key])
    except ValueError:
        number = -1.0
    whole_allowed = default == 1.0
    if not (0.0 < number < 1.0 or (whole_allowed and number == 1.0)):
        raise UsageError(f"{key}:{values[key]} should hold a number between 0 and 1")
    return number


def _divisions(value: str) -> tuple[int, ...]:
    """`4` for all sizes, or `[256:1,512:2,>:4]`: divisions from 256 MiB, from 512 MiB, and for all above."""
    if not value:
        return ()
    if not value.startswith("["):
        return (_power_of_two(value),) * DIVISION_INTERVALS
    table = [0] * DIVISION_INTERVALS
    last = 0
    first = True
    for part in value.strip("[]").split(","):
        start, _, count = part.partition(":")
        number = 0 if count == "0" else _power_of_two(count)
        if start == ">":
            table[last + 1 :] = [number] * (DIVISION_INTERVALS - last - 1)  # from the second interval at the earliest
            continue
        index = min(_power_of_two(start).bit_length() - 1, DIVISION_INTERVALS - 1)
        if first:
            table[:index] = [number] * index
        table[index] = number
        first, last = False, index
    return tuple(table)


def _power_of_two(value: str) -> int:
    number = _whole("roundup_power2_divisions", value)
    if number < 1 or number & (number - 1):
        raise UsageError(f"roundup_power2_divisions: {value} is not a power of two")
    return number
