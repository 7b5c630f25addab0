"""The Containerfile of a program: its base image, its requirements, its own files. Pure text, the same for all clients."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from tonnage.engines.base import Job, Source
from tonnage.engines.bundle import write_files
from tonnage.engines.service import ServiceTraits

FOLDER = "/app"
PROGRAM, REQUIREMENTS, CONTAINERFILE = "program", "requirements.txt", "Containerfile"
NOBODY = "65534:65534"


def render_containerfile(job: Job, source: Source) -> str:
    """Requirements first: they change seldom, and their layer is then found again. A service's may need its files."""
    files, requirements = [f"COPY {PROGRAM}/ {FOLDER}/"], []
    if source.requirements:
        command = json.dumps(["python3", "-m", "pip", "install", "--no-cache-dir", "-r", f"/{REQUIREMENTS}"])
        requirements = [f"COPY {REQUIREMENTS} /{REQUIREMENTS}", f"RUN {command}"]
    if job.service is None:
        lines = [*requirements, *files, f"WORKDIR {FOLDER}"]
    else:
        lines = [*(files if source.files else []), *requirements, *_service_lines(job, job.service)]
    return "\n".join([f"FROM {job.image}", *lines]) + "\n"


def _service_lines(job: Job, service: ServiceTraits) -> list[str]:
    """So that the image works as well where others start it."""
    return [
        f"USER {NOBODY}",
        "STOPSIGNAL SIGTERM",
        f"EXPOSE {' '.join(str(job_port) for _, job_port in job.ports)}",
        f"HEALTHCHECK --interval=10s --timeout=5s --start-period={service.probes.start_seconds:.0f}s "
        f"CMD {json.dumps(health_command(service))}",
        f"CMD {json.dumps(list(job.command))}",
    ]


def health_command(service: ServiceTraits) -> list[str]:
    """By the image's own Python: it need not have anything else that can ask."""
    return ["python3", "-m", "tonnage.serve.health", service.probes.live_url]


def image_tag(job: Job, source: Source) -> str:
    """The same program on the same image has the same name, and is built once."""
    digest = hashlib.sha256()
    for part in (render_containerfile(job, source), *source.requirements):
        digest.update(part.encode() + b"\0")
    for name in sorted(source.files):  # all that is copied, which may be more than the program
        digest.update(name.encode() + b"\0" + hashlib.sha256(source.files[name]).digest())
    return f"localhost/tonnage-program:{digest.hexdigest()[:16]}"


def write_context(folder: Path, job: Job, source: Source) -> None:
    """All that the build needs, in an empty folder."""
    (folder / CONTAINERFILE).write_text(render_containerfile(job, source))
    if source.requirements:
        (folder / REQUIREMENTS).write_text("\n".join(source.requirements) + "\n")
    write_files(folder / PROGRAM, source.files)
