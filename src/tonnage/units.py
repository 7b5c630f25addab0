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
