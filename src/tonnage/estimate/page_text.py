"""Texts and numbers of the report: made safe to stand in HTML, and written as people read them."""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode
from hashlib import sha256

from tonnage import __version__
from tonnage.estimate.estimate import Estimate, Interval, TimeEstimate
from tonnage.units import format_joules, format_seconds, format_usd

# Controls, halves of characters, and marks that would turn the direction of the text after them.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff\u202a-\u202e\u2066-\u2069]")
WAITS = {
    "GPU": "the GPU is busy",
    "host": "the GPU waits for the host",
    "copies": "copies take most of it",
    "network": "GPUs wait for each other",
}


def escape(text: object) -> str:
    """Text of the user's as it may stand in an element or in a quoted attribute."""
    return html.escape(printable(text))


def printable(text: object) -> str:
    return _UNPRINTABLE.sub("\ufffd", str(text))


def script_json(value: object) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def policy_for(script: str) -> str:
    """A content security policy that lets only this script run, whatever texts of users the page contains."""
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'"


def page_head(title: str, policy: str, style: str) -> str:
    """The beginning of a complete document, up to its head's end; `title` is safe already."""
    return f"""<!DOCTYPE html>
<html lang="en" class="tonnage whole">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="tonnage {__version__}">
<title>{title}</title>
<style>{style}</style>
</head>
"""


def words(name: str) -> str:
    return escape(name.replace("_", " "))


def percent(part: float, whole: float, digits: int = 1) -> str:
    return f"{100 * part / whole:.{digits}f} %" if whole else "0 %"


def name_of(gpu: str) -> str:
    return f'<span class="name">{escape(gpu)}</span>'


def title_of(estimate: Estimate) -> str:
    """`H200`, or `4 × H200` for several of them."""
    return estimate.gpu if estimate.gpu_count == 1 else f"{estimate.gpu_count} × {estimate.gpu}"


def duration(seconds: float) -> str:
    return format_seconds(seconds).replace(" us", " µs")


def span_of(low: str, high: str) -> str:
    """`21 to 33 ms`: the unit of the lower bound is left out where it is the same."""
    same_unit = low.split()[1:] == high.split()[1:] and len(low.split()) == 2
    return low if low == high else f"{low.split()[0] if same_unit else low} to {high}"


def duration_range(interval: Interval) -> str:
    return span_of(duration(interval.low), duration(interval.high))


def watts(interval: Interval) -> str:
    return f"{interval.value:,.0f} W"


def joules(interval: Interval) -> str:
    return format_joules(interval.value)


def epoch_cost(time: TimeEstimate) -> Interval | None:
    if time.cost_usd_hour is None or time.epoch_seconds is None:
        return None
    return _priced(time.epoch_seconds, time.cost_usd_hour, 1)


def thousand_steps_cost(time: TimeEstimate) -> Interval | None:
    return None if time.cost_usd_hour is None else _priced(time.step_seconds, time.cost_usd_hour, 1000)


def _priced(seconds: Interval, usd_hour: Interval, count: int) -> Interval:
    hours = count / 3600
    return Interval(
        seconds.value * hours * usd_hour.value, seconds.low * hours * usd_hour.low, seconds.high * hours * usd_hour.high
    )


def dollars(interval: Interval) -> str:
    return format_usd(interval.value)
