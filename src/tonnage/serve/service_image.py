"""All that `podman build` or `docker build` needs to make the image of a service, for clusters, which build none."""

from __future__ import annotations

import shutil
from pathlib import Path

from tonnage.engines.base import Job
from tonnage.engines.containerfile import CONTAINERFILE, write_context
from tonnage.errors import NotFound, UsageError
from tonnage.serve.service_file import Service
from tonnage.serve.service_job import COMMAND, image_of, ports_of, source_of, traits_of

_MODELS = "models"


def write_image_files(service: Service, folder: Path, models: Path | None = None) -> None:
    """Into a folder that is not there yet; with the models, where the service file says that the image has them."""
    source = source_of(service)
    if source is None:
        raise service.error(("install",), "is missing: there is nothing to build", "install: ['tonnage[serve]']")
    kind, place = service.models
    if models is not None and kind != "image":
        raise service.error(("models",), "is not in the image", "models: image:/models")
    if models is not None and not models.is_dir():
        raise NotFound(f"there is no folder {models}")
    job = Job(
        name="image", image=image_of(service), command=COMMAND, ports=ports_of(service), service=traits_of(service)
    )
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise UsageError(f"{folder} is there already", "choose another --folder") from None
    write_context(folder, job, source)
    if models is not None:
        _add_models(folder, models, place)


def _add_models(folder: Path, models: Path, place: str) -> None:
    """Before the user changes, so that they belong to root and the server can only read them."""
    shutil.copytree(models, folder / _MODELS)
    path = folder / CONTAINERFILE
    path.write_text(path.read_text().replace("\nUSER ", f"\nCOPY {_MODELS}/ {place.rstrip('/')}/\nUSER ", 1))
