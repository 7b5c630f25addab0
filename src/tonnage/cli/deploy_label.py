"""`tonnage deploy label.json`: what may be said beside a label."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.errors import UsageError

if TYPE_CHECKING:
    from tonnage.engines.base import EngineOptions, Job

NODE_TYPE_LABEL = "tonnage.io/node-type"  # what the documentation tells people to label nodes with


def refuse_contradictions(label: Path, **given: object) -> None:
    """Whatever the label says must not be said again: it would not be what the server has signed."""
    said = [
        name if name == "arguments" else f"--{name}" for name, value in given.items() if value not in (None, "", [])
    ]
    if said:
        raise UsageError(f"{label} says what runs, and on what: {said[0]} cannot be given with it", "leave it out")


def notes_of(job: Job, engine: str, options: EngineOptions) -> Iterator[str]:
    """What the label says and nobody can enforce."""
    from tonnage.engines.jobs import LOADER_WORKERS, SET_LOADERS, WITHOUT_IMAGE

    if engine in WITHOUT_IMAGE:
        yield f"a {engine} job does not use the label's image"
    if not getattr(options, "node_type_label", "-"):
        yield (
            f"any node that is large enough may be taken, not only those of the type {job.node_type}; "
            f"if yours say their type: -o node_type_label={NODE_TYPE_LABEL}"
        )
    workers = job.environment.get(LOADER_WORKERS)
    if workers and SET_LOADERS not in job.environment:
        yield (
            f"the predicted time counts on {workers} loader workers: the program reads their number in {LOADER_WORKERS}, "
            "or --set-loaders gives them to data loaders that have none"
        )
