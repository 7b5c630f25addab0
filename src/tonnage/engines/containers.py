"""The engines `podman` and `docker`: an image built from the program, a container with its limits, started or not there."""

from __future__ import annotations

import re
import secrets
import shlex
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from tonnage.engines.base import EngineOptions, Job, JobId, JobStatus, Manifest, own_options
from tonnage.engines.container_arguments import (
    GPUS_LABEL,
    OWN_LABEL,
    Chosen,
    ContainerOptions,
    choose,
    create_arguments,
    not_chosen_yet,
)
from tonnage.engines.container_client import DOCKER, PODMAN, Client, Dialect
from tonnage.engines.container_environment import check_lines, lines, named, note
from tonnage.engines.container_service import SHOWN_FOLDER, shown_folders, with_folders, write_folders
from tonnage.engines.container_states import container_status
from tonnage.engines.containerfile import image_tag, render_containerfile, write_context
from tonnage.engines.folders import state_folder
from tonnage.engines.free_gpus import gpu_holders
from tonnage.engines.host import CDI_FOLDERS, Host, cdi_devices, check_fits, read_host
from tonnage.engines.names import check_environment, check_labels, check_name
from tonnage.engines.ports import check_ports, check_ports_are_free
from tonnage.errors import NotFound, TonnageError, UsageError

_BASE_LABEL, _GRACE_LABEL, _START_LABEL = "tonnage.base", "tonnage.grace-seconds", "tonnage.start"


class ContainerEngine:
    """What the two have in common, which is nearly everything."""

    name: ClassVar[str]
    dialect: ClassVar[Dialect]
    Options: ClassVar[type[EngineOptions]] = ContainerOptions

    def __init__(
        self, folder: Path | None = None, host: Host | None = None, cdi_folders: Sequence[Path] = CDI_FOLDERS
    ) -> None:
        self._asked_folder, self._asked_host, self._cdi_folders = folder, host, cdi_folders
        self.client = Client(self.dialect)

    @cached_property
    def host(self) -> Host:
        return self._asked_host or read_host()

    @cached_property
    def folder(self) -> Path:
        """Which containers were cancelled: the clients do not remember."""
        folder = self._asked_folder or state_folder() / self.name
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder

    def plan(self, job: Job, options: EngineOptions) -> Manifest:
        own = own_options(options, ContainerOptions)
        _check(job)
        chosen, notes = not_chosen_yet(job.resources, own)
        arguments = self._arguments(with_folders(job, SHOWN_FOLDER), own, chosen)
        text = note(job) + notes + self._readable(arguments, len(job.command))
        if job.service is not None:
            text = shown_folders(job.service) + text
        if job.source is not None:
            build = (
                f"{self.dialect.command} build {shlex.join(self.dialect.build)} --tag {image_tag(job, job.source)} ."
            )
            text = f"# Containerfile\n{render_containerfile(job, job.source)}\n{build}\n{text}"
        started = f"{text}\n{self.dialect.command} start {job.name}\n"
        return Manifest(engine=self.name, name=job.name, text=started, job=job, options=own)

    def submit(self, manifest: Manifest) -> JobId:
        job, options = manifest.job, own_options(manifest.options, ContainerOptions)
        self._check_size(job)
        self._choose(job, options, {})  # before anything is built: whether it could be had at all
        _check_mounts(job)
        check_ports_are_free(job.ports)
        base = self._base(job)
        if job.source is not None:
            self._build(job, base)
        # By a mark of its own and not by its name: what is removed on failure is never another job of that name.
        start = secrets.token_hex(8)
        marked = replace(with_folders(job, self._files(start)), labels={_START_LABEL: start, **job.labels})
        try:
            if job.service is not None:
                write_folders(job.service, self._files(start))
            with gpu_holders(self, job.resources.gpu_count) as holders:
                arguments = self._arguments(marked, options, self._choose(job, options, holders))
                said = self.client.run(*arguments, environment=named(job), given=lines(job))
            container = said.strip().splitlines()[-1]
            self.client.run("start", container)
            self._check_started(job, container)
        except BaseException:
            self._remove_started(start)
            raise
        return JobId(job.name)

    def reconfigure(self, manifest: Manifest) -> None:
        """Other files in the place of those that the service reads."""
        document = self._inspect(JobId(manifest.name))
        if manifest.job.service is not None:
            write_folders(manifest.job.service, self._files(document["Config"]["Labels"][_START_LABEL]))

    def state(self, job_id: JobId) -> JobStatus:
        return self._status(self._inspect(job_id))

    def cancel(self, job_id: JobId) -> None:
        document = self._inspect(job_id)
        if self._status(document).state.is_over:
            return
        self._mark(document).touch()
        grace = document["Config"]["Labels"].get(_GRACE_LABEL, "10")
        self.client.run("stop", "-t", grace, document["Id"], seconds=60 + float(grace))

    def logs(self, job_id: JobId, *, follow: bool = False) -> Iterator[str]:
        container = self._inspect(job_id)["Id"]
        return self.client.lines("logs", *(["--follow"] if follow else []), container)

    def jobs(self) -> Iterator[tuple[JobId, JobStatus, Mapping[str, str]]]:
        for document in self._documents(OWN_LABEL):
            yield JobId(document["Config"]["Labels"][OWN_LABEL]), self._status(document), _labels(document)

    def held_gpus(self) -> Iterator[tuple[str, JobId]]:
        for document in self._documents(GPUS_LABEL):
            if not self._status(document).state.is_over:
                labels = document["Config"]["Labels"]
                yield from ((gpu, JobId(labels[OWN_LABEL])) for gpu in labels[GPUS_LABEL].split(","))

    def can_share(self, gpus: Collection[str], options: EngineOptions) -> bool:  # noqa: ARG002 - all of them, always
        return True

    def remove(self, job_id: JobId) -> None:
        document = self._inspect(job_id)
        if not self._status(document).state.is_over:
            raise UsageError(f"{job_id} is still running", f"tonnage stop {job_id}")
        self.client.run("rm", "--force", document["Id"])
        self._mark(document).unlink(missing_ok=True)
        shutil.rmtree(self._files(document["Config"]["Labels"].get(_START_LABEL, "-")), ignore_errors=True)

    # -- inside -----------------------------------------------------------------------------------------------------------

    def _readable(self, arguments: list[str], command_words: int) -> str:
        """One option a line, and the program's own words together at the end."""
        options, rest = arguments[1 : -command_words - 1], arguments[-command_words - 1 :]
        lines = [f"{self.dialect.command} {arguments[0]}", *map(shlex.quote, options), shlex.join(rest)]
        return " \\\n  ".join(lines)

    def _arguments(self, job: Job, options: ContainerOptions, chosen: Chosen) -> list[str]:
        image = image_tag(job, job.source) if job.source else job.image
        grace = max(options.grace_seconds, job.service.grace_seconds if job.service else 0)
        marked = replace(job, labels={_GRACE_LABEL: str(grace), **job.labels})
        return create_arguments(marked, options, chosen, image, health_words=self.dialect.health_words)

    def _choose(self, job: Job, options: ContainerOptions, holders: Mapping[str, JobId]) -> Chosen:
        devices = cdi_devices(options.cdi_kind, self._cdi_folders)
        return choose(job.resources, options, self.host, devices, holders)

    def _remove_started(self, start: str) -> None:
        """Whatever came of a start that failed: the client may have made a container and not come to say so."""
        with suppress(TonnageError):  # what went wrong first is what the user must know
            for document in self._documents(f"{_START_LABEL}={start}"):
                self.client.run("rm", "--force", document["Id"])
        shutil.rmtree(self._files(start), ignore_errors=True)

    def _check_size(self, job: Job) -> None:
        """Of the machine behind the client; GPUs are looked at when they are chosen."""
        behind = self.host
        if not self.client.is_here:
            cores, memory_bytes = self.client.size()
            behind = replace(self.host, cores=tuple(range(cores)), memory_bytes=memory_bytes)
        check_fits(replace(job.resources, gpu_count=0), behind)

    def _check_started(self, job: Job, container: str) -> None:
        """The little init process starts well even where the program is not there; it says so in the log, and ends."""
        if not self._status(self.client.inspect("container", container)[0]).state.is_over:
            return
        said = next(self.client.lines("logs", container), "")
        if re.search(r"catatonit.*failed to exec|tini.*exec .* failed", said):
            raise NotFound(
                f"{job.image} cannot run {job.command[0]}: {said.rpartition(':')[2].strip()}", "try another --image"
            )

    def _base(self, job: Job) -> str:
        document = self.client.find_image(job.image)
        if document is None:
            command = self.dialect.command
            raise NotFound(
                f"{command} has no image {job.image}",
                f"fetch it with `{command} pull {job.image}` or make it with `{command} build`",
            )
        return str(document["Id"])

    def _build(self, job: Job, base: str) -> None:
        """Once for each program and base image: a name that came to mean another image is built anew."""
        assert job.source is not None
        tag = image_tag(job, job.source)
        built = self.client.find_image(tag)
        if built is not None and (built["Config"].get("Labels") or {}).get(_BASE_LABEL) == base:
            return
        with tempfile.TemporaryDirectory(prefix="tonnage-build-") as folder:
            write_context(Path(folder), job, job.source)
            self.client.build(folder, tag, [f"{_BASE_LABEL}={base}"], one_layer=not job.source.requirements)

    def _documents(self, label: str) -> Iterator[dict[str, Any]]:
        """Of the containers with this label, all at once; one by one if one of them was removed at this moment."""
        listed = self.client.run("ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={label}").split()
        try:
            yield from self.client.inspect("container", *listed) if listed else ()
        except NotFound:
            for container in listed:
                with suppress(NotFound):
                    yield from self.client.inspect("container", container)

    def _inspect(self, job_id: JobId) -> dict[str, Any]:
        """Only containers that we made: another one of that name is none of our business."""
        missing = NotFound(f"{self.name} has no job {job_id!r}", "`tonnage status` lists all")
        try:
            document = self.client.inspect("container", job_id)[0]
        except NotFound:
            raise missing from None
        if (document["Config"].get("Labels") or {}).get(OWN_LABEL) != job_id:
            raise missing
        return document

    def _status(self, document: dict[str, Any]) -> JobStatus:
        return container_status(document, self._mark(document).exists())

    def _files(self, start: str) -> Path:
        """Those that a service follows; the folder above is nobody else's to read."""
        return self.folder / "services" / start

    def _mark(self, document: dict[str, Any]) -> Path:
        return self.folder / f"{document['Id'][:32]}.cancelled"


class PodmanEngine(ContainerEngine):
    """Podman, with or without root."""

    name = "podman"
    dialect = PODMAN


class DockerEngine(ContainerEngine):
    """Docker, and whatever answers to its client."""

    name = "docker"
    dialect = DOCKER


def _check(job: Job) -> None:
    check_name(job.name)
    check_labels(job.labels)
    check_environment(job.environment)
    check_lines(job)
    check_ports(job.ports)
    if not job.image or job.image.startswith("-") or any(char.isspace() for char in job.image):
        raise UsageError(
            f"{job.image!r} is no image" if job.image else "a container needs an image", "name one with --image"
        )
    if job.replicas > 1:
        raise UsageError(f"one container is started, not {job.replicas}", "--engine kubernetes runs several instances")
    for mount in job.mounts:
        if "," in mount.source + mount.target:
            raise UsageError(f"{mount.source} cannot be mounted: there is a comma in the path")


def _check_mounts(job: Job) -> None:
    for mount in job.mounts:
        if not Path(mount.source).exists():
            raise NotFound(f"{mount.source} cannot be mounted: it is not there")


def _labels(document: dict[str, Any]) -> dict[str, str]:
    """As they were asked for; the image brings labels of its own."""
    foreign = (OWN_LABEL, GPUS_LABEL, _BASE_LABEL, _GRACE_LABEL, _START_LABEL, "io.buildah.version")
    return {key: value for key, value in document["Config"]["Labels"].items() if key not in foreign}
