"""A service as a container: how it is started again, and the files that it follows, which are kept in a folder of ours."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tonnage.engines.base import Job, Mount
from tonnage.engines.containerfile import health_command
from tonnage.engines.service import Folder, ServiceTraits

SHOWN_FOLDER = "FOLDER"  # for people who read what would be started


def service_arguments(service: ServiceTraits, *, health_words: bool) -> Iterator[str]:
    """Podman starts a container again at once, without a pause: therefore not for ever.

    A server that does not answer any more is killed, and so started again. Docker's client would need a shell in the image
    to ask; images that are built here bring the question along.
    """
    if service.restarts:
        yield f"--restart=on-failure:{service.restarts}"
    yield "--stop-signal=SIGTERM"
    yield f"--stop-timeout={service.grace_seconds}"
    if health_words:
        yield f"--health-cmd={json.dumps(health_command(service))}"
        yield from ("--health-interval=10s", "--health-timeout=5s", "--health-retries=3")
        yield f"--health-start-period={service.probes.start_seconds:.0f}s"
        yield "--health-on-failure=kill"


def with_folders(job: Job, base: str | Path) -> Job:
    """The folders of its service as mounts. Whole folders: a file that is mounted alone is not seen to be replaced."""
    if job.service is None:
        return job
    mounts = tuple(
        Mount(source=f"{base}/{_name(folder)}", target=folder.target)
        for folder in job.service.folders
        if not folder.secret
    )
    return replace(job, mounts=(*job.mounts, *mounts))


def write_folders(service: ServiceTraits, base: Path) -> None:
    """New files, or others in the place of old ones. The job's user reads them; the folder around them is ours alone."""
    base.mkdir(parents=True, exist_ok=True, mode=0o700)
    for folder in service.folders:
        place = base / _name(folder)
        place.mkdir(exist_ok=True)
        place.chmod(0o755)
        for name, content in folder.files.items():
            _replace(place / name, content)
        for stale in (path for path in place.iterdir() if path.name not in folder.files):
            stale.unlink()


def shown_folders(service: ServiceTraits) -> str:
    """What would be written; of what is private the names only."""
    text = f"# {SHOWN_FOLDER}: where Tonnage keeps the files of this service\n" if service.folders else ""
    for folder in service.folders:
        for name, content in folder.files.items():
            path = f"{folder.target}/{name}"
            text += f"# {path}: not shown\n" if folder.is_private else f"# {path}\n{content.decode()}\n"
    return text


def _name(folder: Folder) -> str:
    return folder.target.strip("/").replace("/", "-")


def _replace(path: Path, content: bytes) -> None:
    """Readers see the old file or the new one."""
    fresh = path.with_name(f".{path.name}.fresh")
    fresh.write_bytes(content)
    fresh.chmod(0o644)
    os.replace(fresh, path)
