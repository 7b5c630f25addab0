"""The time of a step in the report: where it goes, as one bar, and call by call on the time-lines of host and GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import floor, log10

from tonnage.estimate.estimate import TimeEstimate, operation
from tonnage.estimate.page_text import duration, escape, name_of, percent, printable, script_json
from tonnage.estimate.step_tree import PHASES
from tonnage.estimate.step_view import StepView, Stretch

UNITS = 1_000_000  # of the width of a lane's coordinates; its height is 1
NAMES = {"copy": "copies"}


def step_parts(time: TimeEstimate) -> dict[str, float]:
    """Seconds of a step by phase, those that take any."""
    parts = {
        "forward": time.forward_seconds.value,
        "backward": time.backward_seconds.value,
        "optimizer": time.optimizer_seconds.value,
        "copy": time.h2d_seconds.value + time.d2h_seconds.value,
        "network": time.network_seconds,
    }
    return {name: seconds for name, seconds in parts.items() if seconds > 0}


def draw_step_bar(time: TimeEstimate) -> str:
    """Where the time of a step goes, as one stacked bar with its numbers."""
    parts = step_parts(time)
    total = sum(parts.values())
    if not total:
        return ""
    pieces = "".join(
        f'<i class="p-{name}" style="flex-grow:{1000 * seconds / total:.1f}"></i>' for name, seconds in parts.items()
    )
    labels = "".join(
        f'<li><i class="swatch p-{name}"></i>{NAMES.get(name, name)} <b>{duration(seconds)}</b> '
        f"<small>{percent(seconds, total, 0)}</small></li>"
        for name, seconds in parts.items()
    )
    return f'<div class="stepbar"><div class="pieces" aria-hidden="true">{pieces}</div><ul>{labels}</ul></div>'


def timeline_section(view: StepView | None) -> str:
    if view is None:
        return ""
    return (
        '<section aria-labelledby="timeline"><h2 id="timeline">Time-line of a step</h2>'
        f'<p class="note">A step in the middle of a run on {name_of(view.gpu)}: {duration(view.step_seconds)} for '
        f"{view.calls:,} calls. {_balance(view)}</p>"
        f"{_controls(view)}{_draw(view)}"
        f"<details><summary>The {len(view.longest)} calls that take longest, as a table</summary>{_table(view)}</details>"
        f'<script type="application/json" id="step-data">{step_data(view)}</script></section>'
    )


def _balance(view: StepView) -> str:
    busy = percent(view.busy_seconds, view.step_seconds, 0)
    ahead = " Pale is what it launches for the next step already." if any(s.ahead for s in view.host) else ""
    return f"The GPU works for {busy} of it, the host needs {duration(view.host_seconds)} to launch everything.{ahead}"


def _controls(view: StepView) -> str:
    found = {stretch.phase for stretch in view.device}
    phases = "".join(
        f'<button type="button" data-phase="{phase}"><i class="swatch p-{phase}"></i>{NAMES.get(phase, phase)}</button>'
        for phase in PHASES
        if phase in found
    )
    return (
        '<p class="zoom scripted" hidden><button type="button" data-zoom="0.5" aria-label="Zoom in">+</button>'
        '<button type="button" data-zoom="2" aria-label="Zoom out">−</button>'
        f'<button type="button" data-zoom="all">whole step</button>{phases}</p>'
    )


def _draw(view: StepView) -> str:
    lanes = {"host": view.host, "GPU": view.device}
    drawn = "".join(_lane(name, stretches, view.step_seconds) for name, stretches in lanes.items())
    ticks = "".join(_ticks(view.step_seconds))
    return (
        f'<div class="timeline" role="group" aria-label="Time-lines of host and GPU">{drawn}'
        f'<div class="axis" aria-hidden="true">{ticks}</div></div>'
        '<p class="readout scripted" id="call" aria-live="polite" hidden></p>'
    )


def _lane(name: str, stretches: Sequence[Stretch], length: float) -> str:
    busy = sum(stretch.end_seconds - stretch.start_seconds for stretch in stretches)
    label = f"{name}: {len(stretches)} stretches of calls, {percent(busy, length, 0)} of the step"
    paths = "".join(
        f'<path class="p-{phase}{" ahead" if ahead else ""}" d="{path}"/>'
        for (phase, ahead), path in _paths(stretches, length).items()
    )
    return (
        f'<div class="lane"><b>{name}</b><div class="track" role="img" aria-label="{label}">'
        f'<svg viewBox="0 0 {UNITS} 1" preserveAspectRatio="none" aria-hidden="true" focusable="false">{paths}</svg>'
        '<i class="mark" hidden></i></div></div>'
    )


def _paths(stretches: Sequence[Stretch], length: float) -> Mapping[tuple[str, bool], str]:
    """One path for all boxes of a colour: thousands of elements would make a page slow."""
    paths: dict[tuple[str, bool], list[str]] = {}
    for stretch in stretches:
        left = round(UNITS * stretch.start_seconds / length)
        width = max(round(UNITS * (stretch.end_seconds - stretch.start_seconds) / length), 1)
        paths.setdefault((stretch.phase, stretch.ahead), []).append(f"M{left} 0h{width}v1h-{width}z")
    return {key: "".join(boxes) for key, boxes in paths.items()}


def _ticks(length: float) -> Iterator[str]:
    """Moments at round numbers, about eight of them; the script draws them anew when it zooms."""
    power = 10 ** floor(log10(length / 8))
    step = next(power * factor for factor in (1, 2, 5, 10) if length / (power * factor) <= 8)
    for number in range(int(length / step + 1e-9) + 1):
        yield f'<span style="left:{100 * number * step / length:.3f}%">{duration(number * step) if number else "0"}</span>'


def step_data(view: StepView) -> str:
    """The calls for the script that shows them under the pointer: times in nanoseconds, names by number."""
    names: dict[str, int] = {}

    def number(name: str) -> int:
        return names.setdefault(printable(name), len(names))

    lanes = [
        [
            [
                round(1e9 * s.start_seconds), round(1e9 * (s.end_seconds - s.start_seconds)), PHASES.index(s.phase),
                number(operation(s.operator)), number(s.module), s.calls, int(s.ahead),
            ]
            for s in stretches
        ]
        for stretches in (view.host, view.device)
    ]  # fmt: skip
    data = {"step": round(1e9 * view.step_seconds), "phases": PHASES, "lanes": lanes, "names": list(names)}
    return script_json(data)


def _table(view: StepView) -> str:
    rows = "".join(
        f"<tr><td>{duration(call.seconds)}</td><td>{percent(call.seconds, view.step_seconds)}</td>"
        f'<td class="text"><code>{escape(operation(call.operator))}</code></td>'
        f'<td class="text path"><code>{escape(call.module)}</code></td>'
        f'<td class="text"><i class="swatch p-{call.phase}"></i>{call.phase}</td>'
        f"<td>{duration(call.start_seconds)}</td></tr>"
        for call in view.longest
    )
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="The calls that take longest">'
        '<table class="plain compact"><thead><tr>'
        '<th scope="col">time</th><th scope="col">of the step</th><th scope="col" class="text">operator</th>'
        '<th scope="col" class="text">module</th><th scope="col" class="text">phase</th><th scope="col">begins at</th>'
        f"</tr></thead><tbody>{rows}</tbody></table></div>"
    )
