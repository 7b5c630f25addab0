"""Numbers as people read them."""

import pytest

from tonnage.units import format_energy, format_joules, format_seconds, format_usd


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 us"), (1e-6, "1 us"), (9.996e-6, "10 us"), (13e-3, "13 ms"), (0.108, "108 ms"), (4.05, "4.05 s"),
        (119.0, "119 s"), (3600.0, "60 min"), (7500.0, "2 h 05 min"), (400_000.0, "4.6 days"),
    ],
)  # fmt: skip
def test_seconds_have_three_digits_and_a_unit_that_suits(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("joules", "text"), [(8.75, "8.75 J"), (3.6e4, "0.01 kWh"), (8.748e5, "0.243 kWh"), (1.8e10, "5,000 kWh")]
)
def test_energy_of_a_run_is_in_kilowatt_hours(joules: float, text: str) -> None:
    assert format_energy(joules) == text


def test_joules_and_dollars_keep_small_amounts() -> None:
    assert (format_joules(1234.0), format_usd(0.00213), format_usd(12.5)) == ("1.23 kJ", "$0.00213", "$12.50")
