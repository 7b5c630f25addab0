"""Reads service.yaml; every complaint is one sentence with file, line and field."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from tonnage.errors import InvalidFile
from tonnage.hardware.yaml_errors import invalid_file
from tonnage.hardware.yaml_lines import Document, Location, read_document
from tonnage.serve.service_models import SECTIONS, ServiceFile

SECRET = "secret:"
Place = Literal["folder", "pvc", "node", "image"]


@dataclass(frozen=True, slots=True)
class Service:
    """What a file says, and where it says it."""

    path: Path
    file: ServiceFile
    document: Document

    def error(self, location: Location, text: str, hint: str = "") -> InvalidFile:
        return self.document.error(location, text, hint)

    def path_of(self, text: str) -> Path:
        """Paths are meant from the folder of the file on."""
        return (self.path.parent / text).absolute()

    @property
    def models(self) -> tuple[Place, str]:
        """Where the models are: a folder of this machine, a claim, a folder of the nodes, or a place in the image."""
        kind, colon, rest = self.file.models.partition(":")
        if colon and kind in ("pvc", "node", "image"):
            return kind, rest  # type: ignore[return-value]  # one of these three
        return "folder", str(self.path_of(self.file.models))


def read_service(path: str | Path) -> Service:
    """Raises `NotFound` or `InvalidFile`."""
    document = read_document(path)
    try:
        service = Service(Path(path), ServiceFile.model_validate(document.value), document)
    except ValidationError as error:
        raise invalid_file(document, error, SECTIONS) from None
    _check_models(service)
    _check_tls(service)
    _check_autoscale(service)
    return service


def _check_models(service: Service) -> None:
    kind, rest = service.models
    if kind in ("node", "image") and not rest.startswith("/"):
        raise service.error(("models",), f"{kind}: takes a full path, such as {kind}:/models")
    if kind == "pvc" and not rest:
        raise service.error(("models",), "pvc: takes the name of a PersistentVolumeClaim, such as pvc:models")


def _check_tls(service: Service) -> None:
    tls = service.file.server.tls
    if tls is None:
        return
    has_files = (tls.certificate is not None, tls.key is not None)
    if any(has_files) != all(has_files):
        missing = "key" if tls.key is None else "certificate"
        raise service.error(("server", "tls"), f"{missing} is missing: TLS needs both")
    if any(has_files) == (tls.secret is not None):
        raise service.error(("server", "tls"), "takes certificate and key, or the name of a secret")


def _check_autoscale(service: Service) -> None:
    scale = service.file.autoscale
    if scale is None:
        return
    if scale.max < scale.min:
        raise service.error(("autoscale", "max"), f"is less than min, {scale.min}")
    if scale.queue_delay < 0.001:
        raise service.error(("autoscale", "queue_delay"), "must be at least 1 ms: clusters count in thousandths")
