"""Reads tasks.yaml; every complaint is one sentence with file, line and field."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from tonnage.allocate.tasks_models import TaskSection, TasksFile
from tonnage.errors import NotFound
from tonnage.hardware.catalogue import find_gpu
from tonnage.hardware.yaml_errors import Problem, invalid_file
from tonnage.hardware.yaml_lines import Location, read_document


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
    seen: set[str] = set()
    sections = []
    for index, section in enumerate(file.tasks):
        at = ("tasks", index)
        for name in {section.name, *names_of(section)}:
            if name in seen:
                raise Problem((*at, "name"), f"the name {name!r} is taken by a task above")
            seen.add(name)
        sections.append(_section(section, at))
    return file.model_copy(update={"tasks": sections})


def _section(section: TaskSection, at: Location) -> TaskSection:
    if section.program is None and section.speeds is None:
        raise Problem(at, "needs a `program`, or `speeds` where they are known")
    if section.program is None and section.arguments:
        raise Problem((*at, "arguments"), "are those of a `program`, and there is none")
    if section.steps is None and (section.program is None or section.epochs is None):
        raise Problem(at, "needs `steps`" + (" or `epochs`" if section.program is not None else ""))
    if section.pin and len(section.pin) != section.gpus:
        raise Problem((*at, "pin"), f"names {len(section.pin)} GPUs, the task wants {section.gpus}")
    changes = {
        "speeds": _by_model(section.speeds, (*at, "speeds")),
        "memory": _by_model(section.memory, (*at, "memory")),
        "watts": _by_model(section.watts, (*at, "watts")),
        "gpu": [_model(name, (*at, "gpu", index)) for index, name in enumerate(section.gpu)],
    }
    return section.model_copy(update=changes)


def _by_model(value: object, at: Location) -> object:
    return {_model(name, (*at, name)): each for name, each in value.items()} if isinstance(value, dict) else value


def _model(name: str, at: Location) -> str:
    try:
        return find_gpu(name).name
    except NotFound as error:
        raise Problem(at, f"{error.message}; {error.hint}") from error
