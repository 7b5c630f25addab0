"""Times in options: `--deadline 2d`, `--budget 10min`."""

from tonnage.errors import UsageError


def read_duration(option: str, text: str | None) -> float | None:
    """Seconds; None where the option was not given."""
    from tonnage.hardware.quantities import parse_duration

    if text is None:
        return None
    hint = f'units are s, min, h and d; several may be combined: {option} "1d 6h"'
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{option} {error}", hint) from None
    if seconds <= 0:
        raise UsageError(f"{option} must be more than 0, not {text!r}", hint)
    return seconds
