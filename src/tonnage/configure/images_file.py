"""The shape of images.yaml, and from a document that was read to `Images`; complaints name file, line and field."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tonnage.configure.images import Image, Images, Version, version_of
from tonnage.configure.label import is_digest, is_reference
from tonnage.hardware.yaml_errors import Problem, invalid_file
from tonnage.hardware.yaml_lines import Document, Location

_Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=63)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class CapabilitySection(_Section):
    at_least: str
    at_most: str


class ImageSection(_Section):
    reference: Annotated[str, Field(min_length=1, max_length=400)]
    digest: str | None = None
    framework: _Word
    framework_version: str
    cuda: str
    driver: str
    compute_capability: CapabilitySection
    format: _Word
    priority: Annotated[int, Field(ge=0, le=1_000_000)] = 0


class ImagesSection(_Section):
    version: _Word
    formats: Annotated[list[_Word], Field(min_length=1, max_length=10)]
    images: Annotated[list[ImageSection], Field(min_length=1, max_length=10_000)]


_SECTIONS = (ImagesSection, ImageSection, CapabilitySection)


def parse_images(document: Document) -> Images:
    """Raises `InvalidFile`."""
    try:
        file = ImagesSection.model_validate(document.value)
        images = tuple(_image(section, ("images", index), file) for index, section in enumerate(file.images))
    except ValidationError as error:
        raise invalid_file(document, error, _SECTIONS) from error
    except Problem as problem:
        raise document.error(problem.location, problem.text) from problem
    return Images(version=file.version, formats=tuple(file.formats), images=images)


def _image(section: ImageSection, at: Location, file: ImagesSection) -> Image:
    if section.format not in file.formats:
        raise Problem((*at, "format"), f"{section.format!r} is not among the formats {', '.join(file.formats)}")
    if not is_reference(section.reference):
        raise Problem((*at, "reference"), "must look like registry/name:tag, and have its digest in a field of its own")
    if section.digest is not None and not is_digest(section.digest):
        raise Problem((*at, "digest"), "must be sha256: and 64 hexadecimal digits")
    capability = section.compute_capability
    return Image(
        reference=section.reference,
        digest=section.digest,
        framework=section.framework,
        framework_version=_version(section.framework_version, (*at, "framework_version")),
        cuda=_version(section.cuda, (*at, "cuda")),
        driver=_version(section.driver, (*at, "driver")),
        capability_least=_version(capability.at_least, (*at, "compute_capability", "at_least")),
        capability_most=_version(capability.at_most, (*at, "compute_capability", "at_most")),
        format=section.format,
        priority=section.priority,
    )


def _version(text: str, at: Location) -> Version:
    try:
        return version_of(text)
    except ValueError:
        raise Problem(at, f"must be a version such as 12.8, not {text!r:.40}") from None
