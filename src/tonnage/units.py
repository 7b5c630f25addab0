"""Numbers as people read them. Inside the program a quantity is always bytes or seconds; these are for printing."""

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


def format_bytes(count: float) -> str:
    """`1536` as `1.5 KiB`, with three significant digits."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1000 or unit == "TiB":
            break
        value /= 1024
    if unit == "B":
        return f"{value:.0f} B"
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:.{digits}f} {unit}"


def format_seconds(seconds: float) -> str:
    """A duration in the unit that suits it, with three digits: `12.3 ms`, `4.05 s`, `2 h 05 min`."""
    if seconds < 1e-3:
        return f"{_three_digits(seconds * 1e6)} us"
    if seconds < 1:
        return f"{_three_digits(seconds * 1e3)} ms"
    if seconds < 120:
        return f"{_three_digits(seconds)} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours / 24:.1f} days"


def format_joules(joules: float) -> str:
    """`1234.0` as `1.23 kJ`."""
    for unit in ("J", "kJ", "MJ"):
        if joules < 999.5 or unit == "MJ":
            break
        joules /= 1000
    return f"{_three_digits(joules)} {unit}"


def format_energy(joules: float) -> str:
    """Of a whole run: kilowatt-hours, unless next to nothing would be left of them."""
    kilowatt_hours = joules / 3.6e6
    if kilowatt_hours < 0.01:
        return format_joules(joules)
    return f"{kilowatt_hours:.3g} kWh" if kilowatt_hours < 999.5 else f"{kilowatt_hours:,.0f} kWh"


def format_usd(dollars: float) -> str:
    """Cents for what costs more than a few of them: `$12.50`, `$0.0213`, `$1,250`."""
    if dollars >= 100:
        return f"${dollars:,.0f}"
    return f"${dollars:.2f}" if dollars >= 0.1 or dollars == 0 else f"${dollars:.3g}"


def _three_digits(value: float) -> str:
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits else text
