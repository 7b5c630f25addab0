"""Stacks as files that other tools read: folded lines, and speedscope's JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tonnage import __version__
from tonnage.profile.report import Stack

SPEEDSCOPE_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_FOLDED_UNIT = 1e-6  # folded stacks hold whole numbers: microseconds here


def fold(stacks: Sequence[Stack]) -> str:
    """One line a stack: frames from the outermost in, with semicolons between, and microseconds."""
    lines = []
    for stack in stacks:
        count = round(stack.seconds / _FOLDED_UNIT)
        if count > 0:
            lines.append(";".join(_plain(frame) for frame in stack.frames) + f" {count}")
    return "\n".join(lines) + "\n" if lines else ""


def _plain(frame: str) -> str:
    """Neither the separator nor the end of a line may stand inside a frame."""
    return frame.replace(";", ":").replace("\n", " ").replace("\r", " ")


def speedscope(stacks: Sequence[Stack], name: str) -> str:
    """A sampled profile whose weights are seconds; see speedscope's file format."""
    numbers: dict[str, int] = {}
    samples = [[numbers.setdefault(frame, len(numbers)) for frame in stack.frames] for stack in stacks]
    weights = [stack.seconds for stack in stacks]
    document = {
        "$schema": SPEEDSCOPE_SCHEMA,
        "exporter": f"tonnage@{__version__}",
        "name": name,
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": frame} for frame in numbers]},
        "profiles": [
            {
                "type": "sampled",
                "name": name,
                "unit": "seconds",
                "startValue": 0,
                "endValue": sum(weights),
                "samples": samples,
                "weights": weights,
            }
        ],
    }
    return json.dumps(document)
