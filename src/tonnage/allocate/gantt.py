"""GPUs over time as SVG: a row for each GPU, a bar for each task, and below it how full the memory is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tonnage.allocate.plan import Assignment, Plan
from tonnage.allocate.problem import Device, Problem, Task
from tonnage.estimate.page_text import escape
from tonnage.units import format_bytes, format_seconds

_LEFT, _WIDTH, _ROW, _BAR, _MEMORY = 200, 1000, 42, 28, 7
_HUES = 8
_TICKS = 8
_LAST_TICK = 0.93  # of the width
_STEPS = (
    *(number * unit for unit in (1, 60) for number in (1, 2, 5, 10, 15, 30)),
    *(number * 3600 for number in (1, 2, 3, 6, 12, 24, 48, 120, 240)),
)  # seconds
_LEAST_LABEL = 7.0  # pixels a letter
_LEAST_HEIGHT = 11.0  # of a bar with letters
_LETTERS = 27  # left of the chart


def draw_gantt(problem: Problem, plan: Plan) -> str:
    by_place: dict[str, list[Assignment]] = {device.place: [] for device in problem.devices}
    for each in plan.assignments:
        for place in each.gpus:
            by_place[place].append(each)
    used = [device for device in problem.devices if by_place[device.place]]
    end = plan.makespan_seconds or 1.0
    tasks = {task.name: task for task in problem.tasks}
    hues = {each.task: number % _HUES for number, each in enumerate(plan.assignments)}
    height = _ROW * len(used) + 26
    rows = "".join(_row(device, by_place[device.place], number, end, tasks, hues) for number, device in enumerate(used))
    idle = len(problem.devices) - len(used)
    note = f'<p class="note">{idle} GPUs have nothing to do.</p>' if idle else ""
    width = _LEFT + _WIDTH
    return (
        f'<div class="scroll"><svg class="gantt" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{len(plan.assignments)} tasks on {len(used)} GPUs over {format_seconds(end)}">'
        f"{''.join(_ticks(end, height))}{rows}</svg></div>{note}"
    )


def _ticks(end: float, height: int) -> Iterator[str]:
    for now in _round_times(end):
        x = _LEFT + _WIDTH * now / end
        anchor = "start" if now == 0 else "end" if now == end else "middle"
        yield f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height - 20}"/>'
        label = format_seconds(now) if now else "0"
        yield f'<text class="tick" x="{x:.1f}" y="{height - 6}" text-anchor="{anchor}">{label}</text>'


def _round_times(end: float) -> list[float]:
    """From 0 to the end; those between are round, and not so near to the end that labels meet."""
    step = next((step for step in _STEPS if end / step <= _TICKS), end / _TICKS)
    times = [number * step for number in range(_TICKS + 1)]
    return [now for now in times if now < end * _LAST_TICK] + [end]


def _row(
    device: Device, there: list[Assignment], number: int, end: float, tasks: dict[str, Task], hues: dict[str, int]
) -> str:
    top = number * _ROW + 3
    lanes = _lanes(there)
    bars = "".join(
        _bar(each, lane, max(lanes.values()) + 1, top, end, hues[each.task])
        for each, lane in ((each, lanes[each.task]) for each in there)
    )
    return _label(device, top) + bars + _memory(device, there, top + _BAR + 2, end, tasks)


def _label(device: Device, top: int) -> str:
    """On two lines where one is too short; of a long place its end is seen, where GPUs differ."""
    place, gpu = device.place, escape(device.gpu)
    on_two = len(place) + len(device.gpu) > _LETTERS
    shown = place if len(place) <= _LETTERS else "…" + place[1 - _LETTERS :]
    span = f'<tspan class="gpu" x="0" dy="14">{gpu}</tspan>' if on_two else f' <tspan class="gpu">{gpu}</tspan>'
    title = f"<title>{escape(place)}, {gpu}</title>"
    return f'<text x="0" y="{top + (11 if on_two else 14)}">{title}{escape(shown)}{span}</text>'


def _lanes(there: list[Assignment]) -> dict[str, int]:
    """Those that share the GPU lie above each other."""
    lanes: dict[str, int] = {}
    ends: list[float] = []
    for each in sorted(there, key=lambda each: (each.start_seconds, each.task)):
        free = [lane for lane, until in enumerate(ends) if until <= each.start_seconds + 1e-9]
        lane = free[0] if free else len(ends)
        ends[lane : lane + 1] = [each.end_seconds]
        lanes[each.task] = lane
    return lanes


def _bar(each: Assignment, lane: int, lanes: int, top: int, end: float, hue: int) -> str:
    together = bool(each.beside)
    height = _BAR / lanes if together else _BAR
    x = _LEFT + _WIDTH * each.start_seconds / end
    width = max(1.0, _WIDTH * (each.end_seconds - each.start_seconds) / end - 0.6)
    y = top + (lane * height if together else 0)
    title = f"{each.task}: {format_seconds(each.start_seconds)} to {format_seconds(each.end_seconds)}. {each.reason}"
    letters = int((width - 6) / _LEAST_LABEL)
    name = each.task if len(each.task) <= letters else each.task[: max(letters - 1, 0)] + "…"
    text = (
        f'<text class="in" x="{x + 4:.1f}" y="{y + height / 2 + 3.5:.1f}">{escape(name)}</text>'
        if letters > 2 and height > _LEAST_HEIGHT
        else ""
    )
    return (
        f'<a href="#task-{escape(each.task)}"><g class="hue{hue}"><title>{escape(title)}</title>'
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height - 1:.1f}" rx="2"/>{text}</g></a>'
    )


def _memory(device: Device, there: list[Assignment], y: float, end: float, tasks: dict[str, Task]) -> str:
    times = sorted({0.0, end, *(t for each in there for t in (each.start_seconds, each.end_seconds))})
    parts = []
    for now, then in pairwise(times):
        names = [each.task for each in there if each.start_seconds <= now < each.end_seconds]
        used = sum(tasks[name].profiles[device.gpu].memory_bytes for name in names)
        if used:
            share = min(1.0, used / device.memory_bytes)
            x, width = _LEFT + _WIDTH * now / end, _WIDTH * (then - now) / end
            title = f"{format_bytes(used)} of {format_bytes(device.memory_bytes)}: {', '.join(names)}"
            span = f'x="{x:.1f}" width="{width:.1f}"'
            parts.append(
                f'<g class="memory"><title>{escape(title)}</title>'
                f'<rect class="room" {span} y="{y:.1f}" height="{_MEMORY}"/>'
                f'<rect {span} y="{y + _MEMORY * (1 - share):.1f}" height="{_MEMORY * share:.1f}"/></g>'
            )
    return "".join(parts)
