"""Sizes, rates and times are read with their units, and only with them."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.hardware.quantities import (
    format_rate,
    format_seconds,
    parse_bytes,
    parse_duration,
    parse_rate,
    parse_seconds,
)


@pytest.mark.parametrize(
    ("text", "count"),
    [("2 TiB", 2 * 2**40), ("512GiB", 512 * 2**30), ("80 GB", 80 * 10**9), ("1.5 KiB", 1536), ("7 B", 7)],
)
def test_sizes_are_read_as_bytes(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize(("text", "rate"), [("400 Gbit/s", 50 * 10**9), ("50 GB/s", 50 * 10**9), ("1 MiB/s", 2**20)])
def test_rates_are_read_as_bytes_a_second(text: str, rate: int) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(("text", "seconds"), [("2 us", 2e-6), ("500 ns", 5e-7), ("0.1ms", 1e-4), ("1 s", 1.0)])
def test_times_are_read_as_seconds(text: str, seconds: float) -> None:
    assert parse_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("2d", 48), ("1.5d", 36), ("2 days", 48), ("1 day", 24), ("1d 6h", 30), ("1d6h", 30), ("1 day 6 hours", 30),
        ("90 min", 1.5), ("30 minutes", 0.5), ("6h", 6), ("7200 s", 2), ("1h 30min", 1.5), ("0 s", 0),
    ],
)  # fmt: skip
def test_times_that_people_wait_are_read_as_seconds(text: str, hours: float) -> None:
    assert parse_duration(text) == pytest.approx(hours * 3600)


@pytest.mark.parametrize("text", ["1h 2h", "1 h ", " 1 h", "1h, 2min", "1h -2min", "2 weeks", "d", "1d 6", "2D", "1ms"])
def test_times_that_people_wait_have_known_units_once_each(text: str) -> None:
    with pytest.raises(ValueError, match=r"^must be a time with its unit"):
        parse_duration(text)


def test_a_time_that_never_ends_is_refused() -> None:
    with pytest.raises(ValueError, match="ends"):
        parse_duration("9" * 400 + " d")


@pytest.mark.parametrize("parse", [parse_bytes, parse_rate, parse_seconds, parse_duration])
@pytest.mark.parametrize(
    "text", ["", "5", 5, None, "GiB", "-1 GiB", "1e3 B", "5 parsecs", "400 Gbit", "1 GiB\n2", ["1 B"]]
)
def test_anything_else_is_refused_with_one_sentence(parse: Callable[[object], float], text: object) -> None:
    with pytest.raises(ValueError, match=r"^must be a (size|rate|time) with its unit"):
        parse(text)


@given(st.integers(0, 10**6), st.sampled_from(["B", "KB", "KiB", "MiB", "GB", "GiB", "TiB"]))
def test_a_size_with_a_space_equals_one_without(number: int, unit: str) -> None:
    assert parse_bytes(f"{number} {unit}") == parse_bytes(f"{number}{unit}")


@given(st.floats(125, 1e14))
def test_a_rate_is_read_back_in_four_digits(bytes_second: float) -> None:
    assert parse_rate(format_rate(bytes_second)) == pytest.approx(bytes_second, rel=0.001, abs=1)


@given(st.floats(1e-9, 1e4))
def test_a_time_is_read_back_in_four_digits(seconds: float) -> None:
    assert parse_seconds(format_seconds(seconds)) == pytest.approx(seconds, rel=0.001)


def test_measured_figures_are_short() -> None:
    assert (format_rate(47.738e6), format_seconds(8.7312e-5)) == ("381.9 Mbit/s", "87.31 us")
