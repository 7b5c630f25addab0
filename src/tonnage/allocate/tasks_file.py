"""Reads tasks.yaml; every complaint is one sentence with file, line and field."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from tonnage.allocate.tasks_models import LEAST_RUN_SECONDS, MOST_RUN_SECONDS, TaskSection, TasksFile
from tonnage.errors import NotFound
from tonnage.hardware.catalogue import find_gpu
from tonnage.hardware.yaml_errors import Problem, invalid_file
from tonnage.hardware.yaml_lines import Location, read_document

_LENGTHS = f"from {LEAST_RUN_SECONDS:g} to {MOST_RUN_SECONDS:.0e} s"


def read_tasks(path: str | Path) -> TasksFile:
    """What a file describes, with GPUs called as the catalogue does; raises `NotFound` or `InvalidFile`."""
    document = read_document(path)
    try:
        return _checked(TasksFile.model_validate(document.value))
    except ValidationError as error:
        raise invalid_file(document, error, (TasksFile, TaskSection)) from error
    except Problem as problem:
        raise document.error(problem.location, problem.text) from problem


def names_of(section: TaskSection) -> list[str]:
    return [section.name] if section.count == 1 else [f"{section.name}-{index}" for index in range(section.count)]


def _checked(file: TasksFile) -> TasksFile:
    groups = {section.name: names_of(section) for section in file.tasks}
    seen: set[str] = set()
    sections = []
    for index, section in enumerate(file.tasks):
        at = ("tasks", index)
        for name in {section.name, *names_of(section)}:
            if name in seen:
                raise Problem((*at, "name"), f"the name {name!r} is taken by a task above")
            seen.add(name)
        sections.append(_section(section, at, groups))
    return file.model_copy(update={"tasks": sections})


def _section(section: TaskSection, at: Location, groups: Mapping[str, list[str]]) -> TaskSection:
    _check_fields(section, at)
    after = [task for name in section.after for task in groups.get(name, [name])]
    changes = {
        "speeds": _by_model(section.speeds, (*at, "speeds")),
        "memory": _by_model(section.memory, (*at, "memory")),
        "watts": _by_model(section.watts, (*at, "watts")),
        "gpu": [_model(name, (*at, "gpu", index)) for index, name in enumerate(section.gpu)],
        "after": list(dict.fromkeys(after)),
        "share": section.share and (section.speeds is None or section.memory is not None),
    }
    changed = section.model_copy(update=changes)
    _check_speeds(changed, at)
    return changed


def _check_fields(section: TaskSection, at: Location) -> None:
    if section.program is None and section.speeds is None:
        raise Problem(at, "needs a `program`, or `speeds` where they are known")
    if section.program is None and section.arguments:
        raise Problem((*at, "arguments"), "are those of a `program`, and there is none")
    if section.steps is None and (section.speeds is not None or section.epochs is None):
        raise Problem(
            at, "needs `steps`" + (", where it has `speeds`" if section.speeds is not None else " or `epochs`")
        )
    if section.steps is not None and section.epochs is not None:
        raise Problem((*at, "epochs"), "stand instead of `steps`, and those are told as well")
    if section.pin and len(section.pin) != section.gpus:
        raise Problem((*at, "pin"), f"names {len(section.pin)} GPUs, the task wants {section.gpus}")
    if double := [place for place in section.pin if section.pin.count(place) > 1]:
        raise Problem((*at, "pin"), f"names {double[0]} twice")


def _check_speeds(section: TaskSection, at: Location) -> None:
    """What is told of one GPU is told of all with a speed, and the run has a length that can be planned."""
    for gpu, speed in (section.speeds or {}).items():
        for field in ("memory", "watts"):
            told = getattr(section, field)
            if isinstance(told, dict) and gpu not in told:
                raise Problem((*at, field), f"says nothing of {gpu}, which has a speed")
        seconds = (section.steps or 0.0) / speed
        if not LEAST_RUN_SECONDS <= seconds <= MOST_RUN_SECONDS:
            raise Problem((*at, "steps"), f"last {seconds:.3g} s on {gpu}; a run has {_LENGTHS}")


def _by_model(value: object, at: Location) -> object:
    if not isinstance(value, dict):
        return value
    found: dict[str, object] = {}
    for name, each in value.items():
        model = _model(name, (*at, name))
        if model in found:
            raise Problem((*at, name), f"is {model}, which is there already")
        found[model] = each
    return found


def _model(name: str, at: Location) -> str:
    try:
        return find_gpu(name).name
    except NotFound as error:
        raise Problem(at, f"{error.message}; {error.hint}") from error
