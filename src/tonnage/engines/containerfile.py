"""The Containerfile of a program: its base image, its requirements, its own files. Pure text, the same for all clients."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from tonnage.engines.base import Job, Source
from tonnage.engines.bundle import write_files

FOLDER = "/app"
PROGRAM, REQUIREMENTS, CONTAINERFILE = "program", "requirements.txt", "Containerfile"


def render_containerfile(image: str, source: Source) -> str:
    """Requirements first: they change seldom, and their layer is then found again."""
    lines = [f"FROM {image}"]
    if source.requirements:
        command = json.dumps(["python3", "-m", "pip", "install", "--no-cache-dir", "-r", f"/{REQUIREMENTS}"])
        lines += [f"COPY {REQUIREMENTS} /{REQUIREMENTS}", f"RUN {command}"]
    lines += [f"COPY {PROGRAM}/ {FOLDER}/", f"WORKDIR {FOLDER}"]
    return "\n".join(lines) + "\n"


def image_tag(job: Job, source: Source) -> str:
    """The same program on the same image has the same name, and is built once."""
    digest = hashlib.sha256()
    for part in (render_containerfile(job.image, source), *source.requirements):
        digest.update(part.encode() + b"\0")
    for name in sorted(source.files):  # all that is copied, which may be more than the program
        digest.update(name.encode() + b"\0" + hashlib.sha256(source.files[name]).digest())
    return f"localhost/tonnage-program:{digest.hexdigest()[:16]}"


def write_context(folder: Path, image: str, source: Source) -> None:
    """All that the build needs, in an empty folder."""
    (folder / CONTAINERFILE).write_text(render_containerfile(image, source))
    if source.requirements:
        (folder / REQUIREMENTS).write_text("\n".join(source.requirements) + "\n")
    write_files(folder / PROGRAM, source.files)
