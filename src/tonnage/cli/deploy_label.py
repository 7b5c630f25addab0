"""`tonnage deploy label.json`: what may be said beside a label."""

from __future__ import annotations

from pathlib import Path

from tonnage.errors import UsageError


def refuse_contradictions(label: Path, **given: object) -> None:
    """Whatever the label says must not be said again: it would not be what the server has signed."""
    said = [
        name if name == "arguments" else f"--{name}" for name, value in given.items() if value not in (None, "", [])
    ]
    if said:
        raise UsageError(f"{label} says what runs, and on what: {said[0]} cannot be given with it", "leave it out")
