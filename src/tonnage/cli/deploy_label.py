"""`tonnage deploy label.json`: what a server has signed, deployed once, and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.errors import UsageError

if TYPE_CHECKING:
    from tonnage.engines.base import Job
    from tonnage.engines.jobs import Surroundings


def is_label(program: Path) -> bool:
    return program.suffix == ".json"


def refuse_contradictions(label: Path, **given: object) -> None:
    """Whatever the label says must not be said again: it would not be what the server has signed."""
    said = [
        name if name == "arguments" else f"--{name}" for name, value in given.items() if value not in (None, "", [])
    ]
    if said:
        raise UsageError(f"{label} says what runs, and on what: {said[0]} cannot be given with it", "leave it out")


@contextmanager
def job_of_label(path: Path, engine: str, name: str, surroundings: Surroundings, *, only_look: bool) -> Iterator[Job]:
    """The job of a verified label. It is used up unless the body fails, or only wants to look."""
    from tonnage.configure.label_annotations import to_annotations
    from tonnage.engines.host import read_host
    from tonnage.engines.jobs import job_of
    from tonnage.service.label_program import read_program
    from tonnage.service.labels import claimed, looked_at, read_label

    program = read_program(path)
    if program.kind != "script":
        raise UsageError(f"{path} is for {program.name}, which is no script", "engines run scripts")
    with (looked_at if only_look else claimed)(path, program) as label:
        if engine == "local":
            print(f"note: a local process does not use the image {label.image.reference}", file=sys.stderr)
        yield job_of(
            label.hardware, Path(program.target), program.arguments, name=name,
            image="" if engine == "local" else label.image.pinned,
            surroundings=replace(surroundings, labels={**surroundings.labels, **to_annotations(read_label(path))}),
            host=None if engine == "kubernetes" else read_host(), record=True,
        )  # fmt: skip
