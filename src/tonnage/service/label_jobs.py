"""The job of a label: what a server has signed, deployed once, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tonnage.configure.label import Label
from tonnage.configure.label_annotations import to_annotations
from tonnage.configure.refusals import OtherProgram
from tonnage.engines.base import Job
from tonnage.engines.jobs import NOTHING_MORE, SET_LOADERS, WITHOUT_IMAGE, Surroundings, job_of
from tonnage.engines.recording import without_recorder
from tonnage.errors import UsageError
from tonnage.program.digest import contents_digest
from tonnage.program.program import Program
from tonnage.service.label_program import read_program
from tonnage.service.labels import claimed, looked_at, read_label


@contextmanager
def job_of_label(
    path: Path,
    engine: str,
    name: str = "",
    surroundings: Surroundings = NOTHING_MORE,
    *,
    only_look: bool = False,
    set_loaders: bool = False,
) -> Iterator[Job]:
    """Of a verified label. It is used up unless the body fails, or only wants to look. Steps of the program are timed.

    With `set_loaders`, the program's data loaders get the workers and the pinned memory that the label counts on.
    """
    signed, program = read_label(path), read_program(path)
    if program.kind != "script":
        raise UsageError(f"{path} is for {program.name}, which is no script", "engines run scripts")
    with (looked_at if only_look else claimed)(path, program) as label:
        if label != signed.label:
            raise UsageError(f"{path} was replaced while it was read", "try again")
        job = job_of(
            label.hardware, Path(program.target), program.arguments, name=name,
            image="" if engine in WITHOUT_IMAGE else label.image.pinned,
            surroundings=replace(
                surroundings, labels={**surroundings.labels, **to_annotations(signed)},
                environment={**surroundings.environment, **({SET_LOADERS: "1"} if set_loaders else {})},
            ),
            record=True,
        )  # fmt: skip
        _check_contents(job, program, label)
        yield replace(job, node_type=label.hardware.node_type)


def _check_contents(job: Job, program: Program, label: Label) -> None:
    """The files were read again after the label was verified: what runs is what was read last."""
    assert job.source is not None
    if contents_digest(program, job.source.entry, without_recorder(job.source)) != label.program_digest:
        raise OtherProgram(f"{program.target} or a module of it was changed while it was deployed", "try again")
